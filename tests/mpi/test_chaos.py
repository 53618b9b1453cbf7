"""`psopt chaos` on real ranks: what it does to them, and what it says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from psopt.launch.survival import how_to_go_on
from tests.mpi.ranks import Running
from tests.training import ROOT, job_file, tiny

pytestmark = pytest.mark.mpi


def written(folder: Path) -> Path:
    return job_file(
        folder,
        tiny(folder, rows=42),
        scheme={"name": "bsp", "slots": 2},
        optimizer={"name": "SGD", "lr": 0.01},
        train={"epochs": 20, "batch_size": 4},
        checkpoint={"every_steps": 10},
        cluster={
            "workers": 2,
            "emulate": True,
            "compute": {"distribution": "constant", "mean": 0.03},
        },
    )


def test_scoreboard(tmp_path: Path) -> None:
    """A kill, and a death in a message where the job outlives it; the second run has no fault of its own."""
    path, out = written(tmp_path), tmp_path / "runs"
    faults = "kill,damage" if how_to_go_on() == "continue" else "kill,slow"
    argv = [Path(sys.executable).parent / "psopt", "chaos", path, "-n", "3", "--runs", "2"]
    with Running([*argv, "--faults", faults, "--out", out], tmp_path) as running:
        status = running.ends()
        said = running.said
    assert status == 0, said
    assert f"cluster.on_loss={how_to_go_on()} (the job says abort)" in said
    assert "run 0: kill of worker" in said
    assert "run 1: " in said
    assert said.count(": right, ") == 2
    summary = json.loads((out / "000-kill" / "summary.json").read_text())
    assert (summary["status"], summary["degraded"]) == ("completed", True)
    assert f"runs are kept in {out}" in said


def test_a_job_that_fails_by_itself(tmp_path: Path) -> None:
    argv = [Path(sys.executable).parent / "psopt", "chaos", written(tmp_path), "-n", "3"]
    argv += ["--out", tmp_path / "runs", "--set", "data.path=nowhere.h5"]
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "fails without any fault, too" in done.stderr
