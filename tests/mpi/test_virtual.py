"""Jobs on real ranks make the bits of the virtual cluster, interrupted and resumed too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.commands import call
from tests.mpi.ranks import module, run
from tests.test_job import saved
from tests.training import job_file, tiny

pytestmark = pytest.mark.mpi

JOBS: dict[str, dict[str, Any]] = {
    f"bsp, {exchange}": {
        "model": {"name": "logistic", "dtype": "float64"},
        "loss": {"name": "logistic", "l2": 1e-2},
        "scheme": {"name": "bsp", "exchange": exchange, "slots": 2},
    }
    for exchange in ("server", "collective")
}
JOBS["dane"] = {  # three shards; resumed on one worker
    "model": {"factory": "tests.zoo:normed", "dtype": "float64"},
    "scheme": {"name": "dane", "shards": 3, "safeguard": True, "local": {"passes": 3}},
    "optimizer": None,
    "train": {"epochs": 1000, "batch_size": 4},
    "checkpoint": {"every_steps": 1},
}


@pytest.mark.parametrize("name", JOBS)
def test_the_same_bits_as_on_virtual_workers(name: str, tmp_path: Path) -> None:
    data = tiny(tmp_path, rows=42)
    two_classes = {"path": str(data), "classes": [2, 1]}
    more = {"stop": {"steps": 4}} if name == "dane" else {"data": two_classes}
    path = job_file(tmp_path, data, **JOBS[name], **more)
    virtual, real = tmp_path / "virtual", tmp_path / "real"
    assert call("run", path, "--simulate", "--out", virtual)[0] == 0
    end = "4" if name == "dane" else "null"
    for argv in (
        [*module(3), path, "--out", real, "--set", "stop.steps=2"],
        [*module(2 if name == "dane" else 3), "--resume", real, "--set", f"stop.steps={end}"],
    ):
        status, said = run(argv, tmp_path)
        assert status == 0, said
    expected, found = saved(virtual), saved(real)
    if name != "dane":
        assert expected["linear.weight"].shape == (1, 6)
    for key, value in expected.items():
        assert value.dtype == torch.float64 or not value.is_floating_point()
        assert torch.equal(found[key], value), key
    shas = {
        json.loads((d / "summary.json").read_text())["parameters_sha256"] for d in (virtual, real)
    }
    assert len(shas) == 1


@pytest.mark.parametrize("name", ["dane", "sandblaster"])
def test_a_poisoned_worker_leaves_no_trace(name: str, tmp_path: Path) -> None:
    """The bits are those of the virtual run without faults, and the worker is named."""
    scheme = JOBS["dane"]["scheme"] if name == "dane" else {"name": "sandblaster"}
    job = {**JOBS["dane"], "scheme": scheme, "stop": {"steps": 6}}
    path = job_file(tmp_path, tiny(tmp_path, rows=42), **job)
    calm, hit = tmp_path / "calm", tmp_path / "hit"
    assert call("run", path, "--simulate", "--out", calm)[0] == 0
    fault = ("--set", "cluster.faults.poisoned={1: 0.5}")
    status, said = run([*module(4), path, "--out", hit, *fault], tmp_path)
    assert status == 0, said
    expected, found = (json.loads((d / "summary.json").read_text()) for d in (calm, hit))
    assert found["parameters_sha256"] == expected["parameters_sha256"]
    assert found["samples"] == expected["samples"]
    assert list(found["refused_by"]) == ["1"]
    assert "worker 1 (rank 2): its result is not finite; another worker's is, and counts" in said
