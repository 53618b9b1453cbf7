"""Workers that stand still: evicted after their deadline, refused when they come back.

A worker that was stopped by SIGSTOP is no dead one: its process is there, mpirun is content, and what it
was sending goes on when it is woken up.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from psopt import job
from tests.mpi.ranks import OPENMPI, Running, launcher
from tests.mpi.test_loss import SCHEMES
from tests.training import job_file, tiny, train

pytestmark = pytest.mark.mpi

DEADLINE = {"factor": 10.0, "least": 1.0, "first": 60.0}


def written(folder: Path, name: str, **cluster: Any) -> Path:
    return job_file(
        folder,
        tiny(folder, rows=42),
        model={"factory": "tests.mpi.faulty:build", "kwargs": {"size": 300_000}},
        scheme=SCHEMES[name],
        optimizer={"name": "SGD", "lr": 0.01},
        train={"epochs": 40, "batch_size": 4},
        checkpoint={"every_steps": 5},
        cluster={
            "workers": 3,
            "on_loss": "continue",
            "deadline": DEADLINE,
            "emulate": True,
            "compute": {"distribution": "constant", "mean": 0.05},
            **cluster,
        },
    )


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


@pytest.mark.parametrize(
    "name", ["bsp", "bsp-collective"] if OPENMPI else ["asp", "bsp-collective", "sandblaster"]
)
def test_a_stopped_worker(name: str, tmp_path: Path) -> None:
    """It is evicted, and comes back to find its push refused; synchronous schemes do not show it."""
    path, out = written(tmp_path, name), tmp_path / "run"
    done = train(job.load(path), tmp_path / "virtual", workers=3)
    with Running([*launcher(4), path, "--out", out], tmp_path) as running:
        running.until_under_way(out)
        victim = running.pid(out, 2)
        running.send(signal.SIGSTOP, victim)
        running.until_said("worker 1 has not answered for")
        time.sleep(2 * DEADLINE["least"])
        running.send(signal.SIGCONT, victim)
        status = running.ends()
        said = running.said
    assert status == 0, said
    found = summary(out)
    assert (found["status"], found["workers"], found["lost_workers"]) == ("completed", 2, [1]), said
    assert (found["samples"], found["refused_updates"]) == (done.tickets.samples, 0)
    if name != "asp":
        assert found["parameters_sha256"] == done.sha
    if name != "bsp-collective":  # there it breaks off like the others, and has nothing to push
        assert "worker 1 is gone already: its late reply is refused" in said


def test_one_that_never_comes_back(tmp_path: Path) -> None:
    """The job ends all the same, and so does the worker's process."""
    path, out = written(tmp_path, "bsp"), tmp_path / "run"
    with Running([*launcher(4), path, "--out", out], tmp_path) as running:
        running.until_under_way(out)
        running.send(signal.SIGSTOP, running.pid(out, 2))
        status = running.ends()
        said = running.said
    assert status == 0, said
    assert (summary(out)["status"], summary(out)["degraded"]) == ("completed", True)


@pytest.mark.parametrize("on_loss", ["abort"] if OPENMPI else ["restart"])
def test_where_the_job_does_not_go_on(on_loss: str, tmp_path: Path) -> None:
    """It ends and says why; or starts again without it."""
    path, out = written(tmp_path, "bsp", on_loss=on_loss), tmp_path / "run"
    with Running([*launcher(4), path, "--out", out], tmp_path) as running:
        running.until_under_way(out)
        running.send(signal.SIGSTOP, running.pid(out, 3))
        status = running.ends()
        said = running.said
    assert "worker 2 has not answered for" in said
    assert "rank 3 (worker 2) on" in said
    found = summary(out)
    if on_loss == "abort":
        assert (status, found["status"]) == (1, "failed")
    else:
        assert status == 0, said
        assert (found["status"], found["workers"], found["lost_workers"]) == ("completed", 2, [2])


def test_a_slow_task_is_no_silence(tmp_path: Path) -> None:
    """A worker that once takes five times as long as it ever did is waited for: by the factor, not the least time."""
    path, out = written(tmp_path, "asp", deadline={**DEADLINE, "least": 0.4}), tmp_path / "run"
    emulate = ("--set", "cluster.compute.mean=0.1")
    fault = ("--set", "model.kwargs={fault: be_slow, rank: 2, at: 8, size: 10}")
    few = ("--set", "train.epochs=6")
    with Running([*launcher(4), path, "--out", out, *emulate, *fault, *few], tmp_path) as running:
        since = running.until_event()
        assert running.ends() == 0, running.said
    assert since
    assert not summary(out)["degraded"]
