"""Checkpoints of whole runs: whose they are, and what a bad disk does to them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from psopt.record import read_metrics
from tests.commands import call, no_rank
from tests.training import job_file, psopt, tiny

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


DISK = {"factory": "tests.wicked:ill_disk"}


def ill(tmp_path: Path, *events: str, steps: int = 12) -> tuple[Path, Path]:
    """A job that saves every second step, on a disk that changes at the given gradients."""
    path = job_file(
        tmp_path,
        tiny(tmp_path, rows=48),
        model={**DISK, "kwargs": {"events": list(events), "folder": str(tmp_path / "run")}},
        train={"epochs": 1, "batch_size": 4},
        stop={"steps": steps},
        cluster={"workers": 1},
        checkpoint={"every_steps": 2, "keep": 2},
        evaluate={"every_epochs": 100},
        log={"timeline_events": 0},
    )
    return path, tmp_path / "run"


def saved(run: Path) -> list[int]:
    return [
        int(path.stem.removeprefix("step-")) for path in sorted((run / "checkpoints").iterdir())
    ]


WORDS = {
    "small": "File too large",
    "full": "No space left on device",
    "broken": "Input/output error",
    "read-only": "Permission denied",
}


@pytest.mark.parametrize("illness", WORDS)
def test_a_bad_disk_is_loud_and_training_goes_on(illness: str, tmp_path: Path) -> None:
    """From the fifth gradient to the ninth: the saves at 6 and 8 fail, 4 is kept, 10 is well again."""
    path, run = ill(tmp_path, f"{illness} 5", "well 9")
    done = psopt("run", path, "--simulate", "--out", run)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for said in (done.stdout, (run / "log.txt").read_text()):
        told = [line for line in said.splitlines() if "warning: checkpoint at step" in line]
        assert [line.partition("step ")[2].partition(" ")[0] for line in told] == ["6", "8"]
        assert said.count(WORDS[illness]) == 2
    assert saved(run) == [10, 12]
    assert json.loads((run / "summary.json").read_text())["status"] == "completed"


@pytest.mark.parametrize("illness", WORDS)
def test_a_disk_that_stays_bad_fails_the_run_at_its_end(illness: str, tmp_path: Path) -> None:
    path, run = ill(tmp_path, f"{illness} 5")
    done = psopt("run", path, "--simulate", "--out", run)
    assert done.returncode == 1
    assert done.stderr == ""
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["steps"]) == ("failed", 12)
    assert "failed (checkpoint at step 12 failed: " in done.stdout
    assert saved(run) == [2, 4]
    (run / "config.yaml").write_text(
        (run / "config.yaml").read_text().replace(f"{illness} 5", "well 1")
    )
    assert "resumed at step 4" in psopt("run", "--resume", run).stdout
    assert saved(run)[-1] == 12
