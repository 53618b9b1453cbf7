"""Checkpoints of whole runs: whose they are, and what a bad disk does to them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from psopt.record import read_metrics
from tests.commands import call, no_rank
from tests.training import job_file, tiny

__all__ = ["no_rank"]


def test_a_checkpoint_of_another_run_is_skipped(tmp_path: Path) -> None:
    """One that a run has from its copy is its own."""
    path, run, other = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run", tmp_path / "other"
    for out in (run, other):
        short = ("--set", "stop.steps=5", "--set", "checkpoint.every_steps=3")
        assert call("run", path, "--simulate", "--out", out, *short)[0] == 0
    copy = shutil.copytree(run, tmp_path / "copy")
    newest = sorted((run / "checkpoints").iterdir())[-1]
    shutil.copy(copy / "checkpoints" / newest.name, newest)
    assert "resumed at step 5" in call("run", "--resume", copy, "--set", "stop.steps=6")[1]
    shutil.copy(other / "checkpoints" / newest.name, newest)
    said = call("run", "--resume", run, "--set", "stop.steps=null")[1]
    assert "it is of another run" in said
    assert "resumed at step 3" in said
    names = [row["run"] for row in read_metrics(run / "attempts.jsonl")]
    assert names == [names[0]] * 2
    assert json.loads((run / "summary.json").read_text())["status"] == "completed"
