"""`psopt sweep --slurm` on a real Slurm: arrays of jobs, what is killed in them, and a second call."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from psopt.record import Submission
from tests.slurm.cluster import Cluster, until
from tests.sweep.making import sweep_file

pytestmark = pytest.mark.slurm
GRID = "grid: {scheme: [{name: bsp}, {name: asp}, {name: wasp}], optimizer.lr: [0.003, 0.01]}\nseeds: 4\n"


def psopt(slurm: Cluster, *words: object) -> subprocess.CompletedProcess[str]:
    return slurm.run(sys.executable, "-m", "psopt", *map(str, words))


def runs(slurm: Cluster, out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(psopt(slurm, "status", out, "--json").stdout)["runs"]
    return found


def job_of(run: dict[str, Any]) -> str:
    submission = Submission.read(Path(run["directory"]))
    assert submission is not None
    return submission.job


def states(slurm: Cluster, out: Path) -> list[str]:
    return [run["state"] for run in runs(slurm, out)]


def test_twenty_four_runs(slurm: Cluster, tmp_path: Path) -> None:
    """Three arrays, four at a time; two tasks are killed, and made up for."""
    out, gate, wait = (tmp_path / name for name in ("it's out (1)", "gate", "wait.sh"))
    gate.touch()
    wait.write_text(f"while [ -e {gate} ]; do sleep 0.1; done\n")
    batch = {"time": "9m", "preamble": [f"source {wait}"]}
    path = sweep_file(tmp_path / "files", GRID, batch=batch)
    command = ("sweep", path, "--out", out, "--slurm", "--jobs", 4)
    first = psopt(slurm, *command)
    assert first.returncode == 0, first.stderr
    assert [*map(int, re.findall(r"submitted \d+: (\d+) runs", first.stdout))] == [11, 11, 2]

    again = psopt(slurm, *command)  # while they wait or run
    assert (again.returncode, "submitting 0" in again.stdout) == (0, True)
    until(slurm, lambda: states(slurm, out).count("running") == 4)
    assert psopt(slurm, "status", out).returncode == 3
    killed = [run for run in runs(slurm, out) if run["state"] == "running"][1:3]
    slurm.call("scancel", *(job_of(run) for run in killed))
    gate.unlink()
    until(slurm, lambda: {*states(slurm, out)} <= {"done", "failed"})
    failed = [run for run in runs(slurm, out) if run["state"] == "failed"]
    assert [run["id"] for run in failed] == [run["id"] for run in killed]
    assert "it was cancelled (CANCELLED)" in failed[0]["reason"]
    assert psopt(slurm, "status", out).returncode == 1

    nothing = psopt(slurm, *command)
    assert "submitting 0" in nothing.stdout
    more = psopt(slurm, *command, "--only", "failed")
    assert "submitting 2" in more.stdout
    until(slurm, lambda: {*states(slurm, out)} == {"done"})
    assert psopt(slurm, "status", out).returncode == 0


def test_a_job_that_cannot_start_is_explained(slurm: Cluster, tmp_path: Path) -> None:
    batch = {"preamble": ["no-such-program --version"], "time": "5m"}
    out = tmp_path / "out"
    path = sweep_file(tmp_path / "files", "seeds: 1\n", batch=batch)
    assert psopt(slurm, "sweep", path, "--out", out, "--slurm").returncode == 0
    until(slurm, lambda: states(slurm, out) == ["failed"])
    (run,) = runs(slurm, out)
    assert "a command of its script was not found (status 127)" in run["reason"]
    assert "no-such-program: command not found" in run["reason"]


def test_what_waits_for_a_failure_is_blocked(slurm: Cluster, tmp_path: Path) -> None:
    batch = {"extra": ["--hold"], "time": "5m"}
    out = tmp_path / "out"
    path = sweep_file(tmp_path / "files", "seeds: 1\n", batch=batch)
    assert psopt(slurm, "sweep", path, "--out", out, "--slurm").returncode == 0
    (run,) = runs(slurm, out)
    assert (run["state"], "it is held; release it (JobHeldUser)" in run["reason"]) == (
        "blocked",
        True,
    )
    assert psopt(slurm, "status", out).returncode == 1


def test_a_rejection_in_the_middle(slurm: Cluster, tmp_path: Path) -> None:
    """Of two arrays: what was taken is named, and is on record."""
    out = tmp_path / "out"
    path = sweep_file(
        tmp_path / "files",
        "zip: {seed: [1, 2], batch.partition: [work, north]}\n",
        batch={"time": "5m"},
    )
    done = psopt(slurm, "sweep", path, "--out", out, "--slurm")
    assert done.returncode == 1
    assert re.search(r"^submitted \d+: 1 runs$", done.stdout, re.MULTILINE)
    assert "invalid partition specified: north" in done.stderr
    assert "1 of 2 arrays are submitted; 1 runs are not: psopt sweep" in done.stderr
    until(slurm, lambda: states(slurm, out) == ["done", "missing"])
