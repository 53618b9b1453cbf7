"""Ranks that are killed at any moment: the job starts again with those that are left, under every MPI."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from psopt import job
from tests.mpi.ranks import FAST, OPENMPI, Running, failing_job, launcher
from tests.training import job_file, tiny, train

pytestmark = pytest.mark.mpi

SCHEMES: dict[str, tuple[dict[str, Any], int]] = {
    "bsp": ({"name": "bsp", "slots": 3}, 80),
    "collective": ({"name": "bsp", "slots": 3, "exchange": "collective"}, 80),
    "dane": ({"name": "dane", "shards": 3, "mu": 1.0, "local": {"passes": 2}}, 40),
    "sandblaster": ({"name": "sandblaster"}, 40),
}
"""Options and steps; slots and shards are named, so that they are as many from whichever start."""

WITHIN = 0.5
"""Seconds after a checkpoint in which a rank is killed; the rest of a job takes longer."""


def written(folder: Path, name: str, **cluster: Any) -> Path:
    """A job whose tasks take 10 ms, with a checkpoint every few of them."""
    scheme, steps = SCHEMES[name]
    return job_file(
        folder,
        tiny(folder, rows=42),
        scheme=scheme,
        optimizer={"name": "SGD", "lr": 0.01},
        train={"epochs": 100_000, "batch_size": 4},
        stop={"steps": steps},
        evaluate={"every_steps": 1000},
        checkpoint={"every_steps": 3},
        cluster={
            "on_loss": "restart",
            "emulate": True,
            "compute": {"distribution": "constant", "mean": 0.01},
            **cluster,
        },
    )


def undisturbed(path: Path, folder: Path) -> str:
    """Bits of the run on virtual workers, of which none dies."""
    return train(job.load(path), folder / "virtual", workers=3).sha


def kill(running: Running, out: Path, *ranks: int, attempt: int = 1) -> float:
    """Kill ranks at some moment of an attempt; when."""
    running.until_under_way(out, attempt)
    time.sleep(random.uniform(0, WITHIN))
    pids = [running.pid(out, rank) for rank in ranks]
    return [running.send(signal.SIGKILL, pid) for pid in pids][-1]


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


@pytest.mark.parametrize("name", ["collective"] if OPENMPI else SCHEMES)
def test_a_killed_worker(name: str, tmp_path: Path) -> None:
    path, out = written(tmp_path, name), tmp_path / "run"
    with Running([*launcher(3), path, "--out", out], tmp_path) as running:
        kill(running, out, 2)
        status, said = running.ends(), running.said
    assert status == 0, said
    assert "psopt: lost: worker 1; restart 1 of 3, 2 ranks\n" in said
    assert "completed, degraded: workers [1] lost (" in said
    found = summary(out)
    assert (found["status"], found["degraded"], found["lost_workers"]) == ("completed", True, [1])
    assert (found["workers"], found["attempts"], found["restarts"]) == (1, 2, 1)
    assert found["parameters_sha256"] == undisturbed(path, tmp_path)
    attempts = [json.loads(line) for line in (out / "attempts.jsonl").read_text().splitlines()]
    assert [attempt.get("lost_ranks") for attempt in attempts] == [None, [2]]
    assert [attempt["ranks"] for attempt in attempts] == [3, 2]


def test_two_workers_and_then_the_coordinator(tmp_path: Path) -> None:
    """Nothing is left of an attempt that ends; a new coordinator costs no worker."""
    path, out = written(tmp_path, "bsp", max_restarts=2), tmp_path / "run"
    with Running([*launcher(4), path, "--out", out], tmp_path) as running:
        kill(running, out, 1, 3)
        running.until_under_way(out, 2)
        family = running.below()
        kill(running, out, 0, attempt=2)
        assert psutil.wait_procs(family, timeout=FAST)[1] == []
        status, said = running.ends(), running.said
    assert status == 0, said
    assert "psopt: lost: worker 0, worker 2; restart 1 of 2, 2 ranks\n" in said
    assert "psopt: lost: coordinator; restart 2 of 2, 2 ranks\n" in said
    found = summary(out)
    assert (found["status"], found["lost_workers"]) == ("completed", [0, 2])
    assert (found["workers"], found["attempts"], found["restarts"]) == (1, 3, 2)
    assert found["parameters_sha256"] == undisturbed(path, tmp_path)


@pytest.mark.parametrize(
    ("ranks", "cluster", "problem"),
    [
        ([1, 3], {"min_workers": 2}, "workers left: 1, cluster.min_workers is 2"),
        ([2], {"max_restarts": 0}, "restarts so far: 0, cluster.max_restarts is 0"),
    ],
)
def test_no_restart(
    ranks: list[int], cluster: dict[str, int], problem: str, tmp_path: Path
) -> None:
    """The job ends at once, and says why."""
    path, out = written(tmp_path, "bsp", **cluster), tmp_path / "run"
    with Running([*launcher(4), path, "--out", out], tmp_path) as running:
        status = running.ends(kill(running, out, *ranks))
        said = running.said
    assert status == 128 + signal.SIGKILL, said
    assert f"psopt: not restarted: {problem}\n" in said
    assert f"go on with: psopt run --resume {out}\n" in said


def test_an_error_is_no_loss(tmp_path: Path) -> None:
    """It would only come again."""
    path, out = failing_job(tmp_path, "asp", fault="fail"), tmp_path / "run"
    argv = [*launcher(3), path, "--out", out, "--set", "cluster.on_loss=restart"]
    with Running(argv, tmp_path) as running:
        status = running.ends(running.until_event())
        said = running.said
    assert status == 1, said
    assert "restart" not in said.replace("on_loss=restart", "")
    assert summary(out)["status"] == "failed"
