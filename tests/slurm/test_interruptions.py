"""Batch jobs on a real Slurm that are interrupted: each goes on, and ends with the bits of one that was not."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from psopt.record import BatchFiles, RunDirectory, read_metrics
from tests.slurm.cluster import GOING_ON, Cluster, until
from tests.slurm.test_submit import finished, submit
from tests.training import psopt

pytestmark = pytest.mark.slurm
STEPS, SECONDS = 100, 0.75
LONG = (  # more than a minute of steps that take no cores, each followed by a checkpoint
    *("train.batch_size=50", "data.train_limit=400", "data.test_limit=50", "device.threads=1"),
    *(f"train.epochs={STEPS // 4}", "checkpoint.every_steps=1", "batch.nodes=1"),
    f"cluster.compute={{distribution: constant, mean: {SECONDS}}}",
)
SLOW = ("cluster.compute.mean=1.5",)  # it takes a while until a node is given up
PAUSE = 5.0
PSOPT = (sys.executable, "-m", "psopt")
WAITS = "waiting for processes of this job from before it was requeued"
# Slurm looks at time limits every 30 s, so that this warning comes between 30 and 60 s after the start.
LIMITED = ("batch.time=2m", "batch.signal_seconds=60")


@dataclass(frozen=True)
class Job:
    """A job, and its run."""

    number: str
    run: Path

    def log(self) -> str:
        """All that it has said: there is one log."""
        (path,) = BatchFiles(self.run).directory.glob("*.log")
        return path.read_text()

    def under_way(self) -> bool:
        """Whether it has saved a checkpoint."""
        return bool([*(self.run / "checkpoints").glob("step-*.h5")])


@pytest.fixture(scope="module")
def jobs(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    """Jobs that ran at the same time, each after its interruption and its end."""
    folder, found = tmp_path_factory.mktemp("runs"), {}
    for name, own in (("limit", LIMITED), ("requeue", ()), ("node", SLOW)):
        run, overrides = folder / name, ("cluster.emulate=true", *LONG, *own)
        found[name] = Job(submit(slurm, run, overrides), run)
    until(slurm, lambda: all(job.under_way() for job in found.values()))
    queue = Queue(slurm, [job.number for job in found.values()])
    slurm.call("scontrol", "requeue", found["requeue"].number)
    lost = found["node"]
    node = slurm.call("squeue", "--noheader", "--jobs", lost.number, "--format=%B").strip()
    slurm.kill(node)
    try:
        until(slurm, lambda: queue.is_over() or WAITS in lost.log())
    finally:
        slurm.start(node)  # which ends what is left there
    until(slurm, queue.is_over)
    return found


class Queue:
    """Jobs that start again soon after they were requeued (Slurm has them wait for two minutes), with more time.

    A node starts no job again within a second or so of its end.
    """

    def __init__(self, slurm: Cluster, jobs: list[str]) -> None:
        self.slurm, self.jobs = slurm, jobs
        self.since: dict[str, float] = {}

    def is_over(self) -> bool:
        """Whether all have ended; those that wait are hurried."""
        states = {job: self.slurm.state(job) for job in self.jobs}
        waiting = {job for job, state in states.items() if state == "PENDING"}
        self.since = {job: self.since.get(job, time.monotonic()) for job in waiting}
        for job in [job for job in waiting if time.monotonic() - self.since[job] > PAUSE]:
            self.since[job] = time.monotonic()
            words = ["scontrol", "update", f"JobId={job}", "StartTime=now", "TimeLimit=10"]
            subprocess.run(words, env=self.slurm.environment, check=False)  # it may have started
        return not {*states.values()} & {*GOING_ON}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bits of the same job on virtual workers, without an interruption."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    words = [word for text in LONG for word in ("--set", text)]
    done = psopt("run", "configs/lenet5_bsp.yaml", "--simulate", "--out", run, *words)
    assert done.returncode == 0, done.stderr
    return bits(run)


def bits(run: Path) -> str:
    summary = RunDirectory.open(run).read_summary()
    assert summary is not None
    assert (summary["status"], summary["steps"]) == ("completed", STEPS)
    return str(summary["parameters_sha256"])


def attempts(job: Job) -> int:
    """How many there were, after the end; each begins where the one before has saved, and is on record."""
    rows = read_metrics(RunDirectory.open(job.run).attempts_path)
    expected = [(job.number, restarts) for restarts in range(len(rows))]
    assert [(row["batch_job"], row["batch_restarts"]) for row in rows] == expected
    log = job.log()
    resumed = [int(step) for step in re.findall(r"resumed at step (\d+)", log)]
    assert len(resumed) == len(rows) - 1, log
    assert resumed[0] > 0
    assert resumed == sorted(resumed)
    steps = [
        row["step"] for row in read_metrics(job.run / "metrics.jsonl") if row["kind"] == "step"
    ]
    assert steps == list(range(1, STEPS + 1))
    return len(rows)


def test_requeued(slurm: Cluster, jobs: dict[str, Job], undisturbed: str) -> None:
    job = jobs["requeue"]
    finished(slurm, job.run, job.number)
    assert attempts(job) == 2
    assert bits(job.run) == undisturbed


def test_a_node_is_lost(slurm: Cluster, jobs: dict[str, Job], undisturbed: str) -> None:
    """Its daemon has died, but not its ranks: the job starts elsewhere, and waits for their end."""
    job = jobs["node"]
    assert WAITS in finished(slurm, job.run, job.number)
    assert attempts(job) == 2
    assert bits(job.run) == undisturbed


def test_the_time_limit(slurm: Cluster, jobs: dict[str, Job], undisturbed: str) -> None:
    """The warning before it comes from Slurm."""
    job = jobs["limit"]
    assert "stopped (SIGUSR2): " in finished(slurm, job.run, job.number)
    assert attempts(job) == 2
    assert bits(job.run) == undisturbed


def test_cancelled_and_resumed(slurm: Cluster, tmp_path: Path, undisturbed: str) -> None:
    """By psopt's own commands; the second job is another one, with a log of its own."""
    run = tmp_path / "run"
    first = submit(slurm, run, ("cluster.emulate=true", *LONG, "cluster.compute.mean=0.2"))
    until(slurm, Job(first, run).under_way)
    assert slurm.call(*PSOPT, "cancel", str(run)) == f"cancelled: job {first} (running)\n"
    until(slurm, lambda: slurm.state(first) == "CANCELLED")
    second = slurm.call(*PSOPT, "resume", str(run)).strip()
    finished(slurm, run, second)
    assert bits(run) == undisturbed
    rows = read_metrics(RunDirectory.open(run).attempts_path)
    assert [row["batch_job"] for row in rows] == [first, second]
    shown = slurm.call(*PSOPT, "logs", str(run), "--lines=1000")
    logs = [(BatchFiles(run).directory / f"{job}.log").read_text() for job in (first, second)]
    assert shown == "".join(logs)
