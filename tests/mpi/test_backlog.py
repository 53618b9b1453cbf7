"""A coordinator that stands still under pushing workers: nothing piles up."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.mpi.ranks import Running, launcher
from tests.training import job_file, tiny

pytestmark = pytest.mark.mpi

PARAMETERS = 2_000_000
REPLY = 4 * PARAMETERS
PAUSE = 3.0


@pytest.mark.parametrize("scheme", [{"name": "asp"}, {"name": "bsp", "slots": 12}])
def test_memory_is_bounded_by_one_reply_a_worker(scheme: dict[str, object], tmp_path: Path) -> None:
    """Also where a worker has several tasks: it stops at the first reply that nobody takes."""
    path = job_file(
        tmp_path,
        tiny(tmp_path, rows=42),
        model={"factory": "tests.mpi.faulty:build", "kwargs": {"size": PARAMETERS}},
        scheme=scheme,
        optimizer={"name": "SGD", "lr": 0.01},
        train={"epochs": 100_000, "batch_size": 2},
        evaluate={"every_steps": 1000},
        checkpoint={"every_steps": 20},
        log={"every_steps": 100},
    )
    out = tmp_path / "run"
    with Running([*launcher(4), path, "--out", out], tmp_path) as running:
        running.until_under_way(out)
        time.sleep(1.0)  # all buffers are there
        processes = [psutil.Process(running.pid(out, rank)) for rank in range(4)]
        before = sum(process.memory_info().rss for process in processes)
        running.send(signal.SIGSTOP, processes[0].pid)
        most = before
        end = time.monotonic() + PAUSE
        while time.monotonic() < end:
            most = max(most, sum(process.memory_info().rss for process in processes))
            time.sleep(0.05)
        running.send(signal.SIGCONT, processes[0].pid)
        saved = json.loads((out / "ranks.json").read_text())
        assert len(saved) == 4
        time.sleep(1.0)
        after = sum(process.memory_info().rss for process in processes)
        running.send(signal.SIGTERM)
        running.ends()
    bound = 3 * REPLY
    assert max(most, after) - before <= bound + (32 << 20), (before, most, after)
