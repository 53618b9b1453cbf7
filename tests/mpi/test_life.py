"""A run of real ranks is cancelled from outside, and goes on with as many as it had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from psopt.record import read_metrics
from tests.mpi.faulty import EVENT
from tests.mpi.ranks import Running, failing_job, launcher
from tests.training import psopt

pytestmark = pytest.mark.mpi


def test_cancelled_and_resumed(tmp_path: Path) -> None:
    job, out = failing_job(tmp_path, "bsp", fault="go_on"), tmp_path / "run"
    with Running([*launcher(), job, "--out", out], tmp_path) as running:
        running.until_event()
        done = psopt("cancel", out)
        assert done.returncode == 0, done.stderr
        (coordinator,) = (
            rank["pid"]
            for rank in json.loads((out / "ranks.json").read_text())
            if rank["rank"] == 0
        )
        assert done.stdout == f"cancelled: process {coordinator}, which saves a checkpoint first\n"
        assert running.ends() == 75, running.said
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["reason"]) == ("stopped", "SIGTERM")
    steps = summary["steps"]
    config = out / "config.yaml"
    config.write_text(config.read_text().replace("100000", str(steps // 5 + 2)))
    done = psopt("resume", out, **{EVENT: str(tmp_path / "again")})
    assert done.returncode == 0, done.stderr
    assert f"resumed at step {steps}" in done.stdout
    first, second = read_metrics(out / "attempts.jsonl")
    assert first["ranks"] == second["ranks"] == 3
