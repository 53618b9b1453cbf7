"""`psopt submit` on a real Slurm: jobs to their end, through a warning, and with a coordinator apart."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from psopt.record import BatchFiles, RunDirectory, Submission, read_metrics
from tests.slurm.cluster import Cluster, until

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).parents[2]
TINY = ("train.epochs=1", "train.batch_size=50", "data.train_limit=400", "data.test_limit=50")


def submit(slurm: Cluster, run: Path, overrides: tuple[str, ...], *flags: str) -> str:
    """The number of a job, submitted in the directory where psopt is."""
    words = [sys.executable, "-m", "psopt", "submit", "configs/lenet5_bsp.yaml", "--out", str(run)]
    words += [word for text in overrides for word in ("--set", text)]
    number = slurm.call(*words, *flags).strip()
    assert number.isdigit()
    return number


def finished(slurm: Cluster, run: Path, job: str) -> str:
    """The log of a job that has come to its end as it should."""
    log = BatchFiles(run).directory / f"{job}.log"
    state = slurm.wait(job, log)
    text = log.read_text()
    assert state == "COMPLETED", f"{text}\n{slurm.logs()}"
    summary = RunDirectory.open(run).read_summary()
    assert summary is not None, text
    assert summary["status"] == "completed", text
    return text


def test_a_job_to_its_end(slurm: Cluster, tmp_path: Path) -> None:
    """In a directory that has to be quoted, and without the environment of the submission."""
    run = tmp_path / 'it\'s (1) "x" #2 100% $(touch marker)'
    job = submit(
        slurm, run, (*TINY, "batch.tasks_per_node=2", "batch.time=10m"), "--", "--export=NONE"
    )
    text = finished(slurm, run, job)
    assert f"run directory: {run}" in text
    found = Submission.read(run)
    assert found is not None
    assert (found.job, found.site) == (job, "slurm")
    (attempt,) = read_metrics(RunDirectory.open(run).attempts_path)
    assert attempt["ranks"] == 3
    shown = slurm.call("scontrol", "show", "job", "--oneliner", job)
    assert " NumNodes=2 " in shown
    assert " TimeLimit=00:10:00 " in shown
    assert not list(tmp_path.rglob("marker"))


def test_a_warned_job_goes_on_in_the_queue(slurm: Cluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = submit(slurm, run, (*TINY, "train.epochs=40", "checkpoint.every_steps=10"))
    until(slurm, lambda: bool([*(run / "checkpoints").glob("step-*.h5")]))
    slurm.call("scancel", "--batch", "--signal=USR2", job)
    until(slurm, lambda: slurm.state(job) == "PENDING")
    stopped = RunDirectory.open(run).read_summary()
    assert stopped is not None
    assert stopped["status"] == "stopped"
    # A job that is requeued waits for two minutes, and its old processes end meanwhile.
    until(slurm, lambda: f"[{job}.0] done with job" in slurm.logs())
    slurm.call("scontrol", "update", f"JobId={job}", "StartTime=now")
    text = finished(slurm, run, job)
    assert "stopped (SIGUSR2): " in text  # by the warning, with a checkpoint; the log goes on
    assert f"resumed at step {stopped['steps']}" in text
    assert len(read_metrics(RunDirectory.open(run).attempts_path)) == 2


def test_a_coordinator_apart(slurm: Cluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = submit(slurm, run, (*TINY, "batch.heterogeneous=true", "batch.tasks_per_node=2"))
    finished(slurm, run, job)
    (attempt,) = read_metrics(RunDirectory.open(run).attempts_path)
    assert attempt["ranks"] == 3


def test_only_a_test(slurm: Cluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [sys.executable, "-m", "psopt", "submit", "configs/lenet5_bsp.yaml", "--out", str(run)]
    for more, status, said in (
        (["--test-only"], 0, " to start at "),
        (["--set", "batch.partition=north"], 1, "invalid partition specified: north"),
    ):
        done = slurm.run(*words, *more)
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert said in done.stderr
        assert not run.exists()
