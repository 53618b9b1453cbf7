"""DANE on real ranks: the bits of the virtual cluster, killed and resumed on other workers too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.test_job import saved
from tests.training import job_file, psopt, tiny

pytestmark = pytest.mark.mpi


def test_the_same_bits_as_on_virtual_workers(tmp_path: Path) -> None:
    data = tiny(tmp_path, rows=42)
    path = job_file(
        tmp_path,
        data,
        model={"factory": "tests.zoo:normed", "dtype": "float64"},
        scheme={"name": "dane", "shards": 3, "safeguard": True, "local": {"passes": 3}},
        optimizer=None,
        train={"epochs": 1000, "batch_size": 4},
        checkpoint={"every_steps": 1},
        stop={"steps": 4},
    )
    virtual, run = tmp_path / "virtual", tmp_path / "run"
    for arguments in (
        ("run", path, "--simulate", "--out", virtual),
        ("run", path, "-n", 3, "--out", run, "--set", "stop.steps=2"),
        ("run", "--resume", run, "-n", 2, "--set", "stop.steps=4"),
    ):
        done = psopt(*arguments)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    expected, found = saved(virtual), saved(run)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    shas = {
        json.loads((d / "summary.json").read_text())["parameters_sha256"] for d in (virtual, run)
    }
    assert len(shas) == 1
