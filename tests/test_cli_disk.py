"""Run directories that cannot be written, at the start and in the middle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from psopt.record import read_metrics, read_timeline
from tests.commands import call, no_rank, refused
from tests.permissions import permissions_hold
from tests.training import job_file, psopt, tiny

__all__ = ["no_rank"]

LIMIT = 60_000
"""Bytes that a file may have: enough for a checkpoint of the small job."""


def content(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name",
    [
        *("config.yaml.old", "environment.json", "ranks.json", "summary.json"),
        *("attempts.jsonl", "log.txt", "metrics.jsonl", "timeline.json"),
    ],
)
def test_a_resume_that_could_not_write_is_refused(name: str, tmp_path: Path) -> None:
    """Permissions, or a directory in the way of each file."""
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    if name == "config.yaml.old":
        run.chmod(0o500)
        wanted = f"{run}: cannot be written: Permission denied"
    else:
        (run / name).unlink()
        (run / name / "something").mkdir(parents=True)
        wanted = f"{run / name}"
    before = content(run)
    with permissions_hold():
        said = refused("run", "--resume", run)
    run.chmod(0o700)
    assert wanted in said
    assert said.count("\n") == 1
    assert content(run) == before


def limited(folder: Path) -> str:
    """PYTHONPATH of processes whose files cannot grow beyond ``LIMIT``."""
    (folder / "limited").mkdir()
    (folder / "limited" / "sitecustomize.py").write_text(
        f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT}))\n"
    )
    return f"{folder / 'limited'}:{os.environ.get('PYTHONPATH', '')}"


def long_job(folder: Path, **changes: Any) -> Path:
    """400 steps: some 1,200 spans, and 400 rows of metrics."""
    train = {"epochs": 80, "batch_size": 4}
    evaluate = {"every_epochs": 1000}
    return job_file(
        folder, tiny(folder), scheme={"name": "asp"}, train=train, evaluate=evaluate, **changes
    )


def test_a_timeline_that_cannot_grow_ends_and_the_training_does_not(tmp_path: Path) -> None:
    path, run = long_job(tmp_path, log={"every_steps": 50}), tmp_path / "run"
    done = psopt("run", path, "--simulate", "--out", run, PYTHONPATH=limited(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    warning = f"warning: {run / 'timeline.json'}: cannot be written: File too large"
    for said in (done.stdout, (run / "log.txt").read_text()):
        assert said.count(warning) == 1
    assert 100 < len(read_timeline(run / "timeline.json")) < 1200
    assert json.loads((run / "summary.json").read_text())["status"] == "completed"


def test_metrics_that_cannot_be_written_end_the_run_in_a_line(tmp_path: Path) -> None:
    path = long_job(tmp_path, log={"timeline_events": 0}, checkpoint={"every_steps": 100})
    run = tmp_path / "run"
    done = psopt("run", path, "--simulate", "--out", run, PYTHONPATH=limited(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        f"psopt: {run / 'metrics.jsonl'}: cannot be written: File too large; see to the disk's space "
        "and permissions\n"
    )
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert summary["reason"].startswith(f"{run / 'metrics.jsonl'}: cannot be written")
    assert call("run", "--resume", run)[0] == 0
    steps = [row["step"] for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "step"]
    assert steps == list(range(1, 401))


@pytest.mark.mpi
def test_metrics_that_cannot_be_written_end_the_ranks_in_a_line(tmp_path: Path) -> None:
    """The model lowers the limit, since MPI's own files want more."""
    model = {"factory": "tests.wicked:small_files", "kwargs": {"size": LIMIT}}
    path, run = long_job(tmp_path, model=model, log={"timeline_events": 0}), tmp_path / "run"
    done = psopt("run", path, "-n", 2, "--out", run)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if "failed, the job ends" in line]
    assert len(lines) == 1, done.stderr
    assert f"{run / 'metrics.jsonl'}: cannot be written: File too large" in lines[0]


def test_a_log_that_cannot_grow_is_left(tmp_path: Path) -> None:
    """What it would have said is on the screen."""
    path = job_file(tmp_path, tiny(tmp_path), train={"epochs": 3, "batch_size": 4})
    run = tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run, "--set", "stop.steps=2")[0] == 0
    (run / "log.txt").write_text("x" * (LIMIT + 1))
    done = psopt(
        *("run", "--resume", run, "--set", "stop.steps=null"), PYTHONPATH=limited(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"psopt: {run / 'log.txt'}: File too large; it goes no further\n"
    assert "completed (epochs)" in done.stdout
