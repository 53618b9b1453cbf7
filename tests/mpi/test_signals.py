"""Who starts a job is killed or interrupted: the ranks end with it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from psopt.record import CheckpointStore, RunDirectory
from tests.mpi.ranks import Running, command, failing_job, launcher, module

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    ("scheme", "way", "number"),
    [
        ("asp", launcher, signal.SIGKILL),
        ("wasp", launcher, signal.SIGINT),
        ("collective", launcher, signal.SIGTERM),
        ("wasp", module, signal.SIGKILL),
        ("bsp", command, signal.SIGTERM),
        ("asp", module, signal.SIGINT),
    ],
)
def test_end_from_outside(
    scheme: str, way: Callable[[], list[str]], number: signal.Signals, tmp_path: Path
) -> None:
    job, out = failing_job(tmp_path, scheme, fault="have_child"), tmp_path / "run"
    with Running([*way(), job, "--out", out], tmp_path) as running:
        running.until_event()
        status = running.ends(running.send(number))
        said = running.said
    assert status != 0, said
    if way is launcher and number != signal.SIGKILL:
        assert f"psopt: ended by {number.name}\n" in said
        assert f"go on with: psopt run --resume {out}" in said


@pytest.mark.parametrize("scheme", ["asp", "collective"])
def test_sigterm_stops_a_run_with_a_checkpoint(scheme: str, tmp_path: Path) -> None:
    """To the launcher, which asks the coordinator; the run goes on from there."""
    job, out = failing_job(tmp_path, scheme, fault="go_on"), tmp_path / "run"
    with Running([*launcher(), job, "--out", out], tmp_path) as running:
        running.until_event()
        status = running.ends(running.send(signal.SIGTERM))
        said = running.said
    assert status == 128 + signal.SIGTERM, said
    assert "stopped (SIGTERM)" in said
    assert f"go on with: psopt run --resume {out}" in said
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["lost_workers"]) == ("stopped", [])
    latest = CheckpointStore(RunDirectory(out).checkpoints, 3).load_latest()
    assert latest is not None
    assert latest[0] == summary["steps"] > 0


def test_a_warning_to_every_rank(tmp_path: Path) -> None:
    """As Slurm sends it: workers serve on, the coordinator saves and ends with the status that says so."""
    job, out = failing_job(tmp_path, "bsp", fault="go_on"), tmp_path / "run"
    with Running([*module(), job, "--out", out], tmp_path) as running:
        running.until_event()
        ranks = json.loads((out / "ranks.json").read_text())
        for rank in reversed(ranks):
            running.send(signal.SIGUSR2, rank["pid"])
        status = running.ends()
        said = running.said
    assert status == 75, said
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["reason"]) == ("stopped", "SIGUSR2")
