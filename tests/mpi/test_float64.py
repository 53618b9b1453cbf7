"""A job in float64 on real ranks: the bits of the virtual cluster, resumed too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.test_job import saved
from tests.training import job_file, psopt, tiny

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("exchange", ["server", "collective"])
def test_the_same_bits_as_on_virtual_workers(exchange: str, tmp_path: Path) -> None:
    data = tiny(tmp_path, rows=42)
    path = job_file(
        tmp_path,
        data,
        data={"path": str(data), "classes": [2, 1]},
        model={"name": "logistic", "dtype": "float64"},
        loss={"name": "logistic", "l2": 1e-2},
        scheme={"name": "bsp", "exchange": exchange, "slots": 2},
    )
    virtual, run = tmp_path / "virtual", tmp_path / "run"
    for arguments in (
        ("run", path, "--simulate", "--out", virtual),
        ("run", path, "-n", 3, "--out", run, "--set", "stop.steps=3"),
        ("run", "--resume", run, "-n", 3, "--set", "stop.steps=null"),
    ):
        done = psopt(*arguments)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    expected, found = saved(virtual), saved(run)
    assert expected["linear.weight"].shape == (1, 6)
    for name, value in expected.items():
        assert value.dtype == torch.float64
        assert torch.equal(found[name], value)
