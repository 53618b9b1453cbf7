"""Signals that ask for an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from psopt.stopping import ASKING, StopRequest
from tests.training import configured, tiny, train

WORKER = """
import signal, sys, time
from psopt import stopping
stopping.GRACE = 1
stop = stopping.StopRequest()
stop.heed()
stop.lasts()
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("number", ASKING)
def test_a_run_is_saved_and_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    """At the next step, without a test before; a second signal does no harm; the bits are those of one run."""
    config = configured(tiny(tmp_path), train={"epochs": 4, "batch_size": 4})
    whole = train(config, tmp_path / "whole")
    handlers = {each: signal.getsignal(each) for each in ASKING}
    stop, calls = StopRequest(), 0
    try:
        stop.heed()

        def compute(worker: int, samples: int) -> float:
            nonlocal calls
            calls += 1
            if calls == 3:
                os.kill(os.getpid(), number)
                os.kill(os.getpid(), signal.SIGUSR1)
            return 0.01 * samples

        half = train(config, tmp_path / "run", compute=compute, stop=stop)
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    assert (half.status, half.reason) == ("stopped", number.name)
    step = half.coordinator.progress.step
    assert 0 < step < whole.coordinator.progress.step
    assert half.rows("evaluation") == []
    saved = half.saved()
    assert saved["progress"]["step"] == step
    rest = train(config, tmp_path / "run", tree=saved)
    assert (rest.status, rest.sha) == ("completed", whole.sha)


def test_one_that_has_nothing_left_is_complete(tmp_path: Path) -> None:
    stop = StopRequest()
    config = configured(tiny(tmp_path), stop={"steps": 2})
    calls = 0

    def compute(worker: int, samples: int) -> float:
        nonlocal calls
        calls += 1
        if calls == 4:  # in the last round
            stop.received = signal.SIGUSR2
        return 0.01

    done = train(config, tmp_path / "run", compute=compute, stop=stop)
    assert (done.status, done.reason) == ("completed", "steps")


@pytest.mark.parametrize(("seconds", "status"), [(0.3, 0), (60.0, -signal.SIGTERM)])
def test_a_worker_ends_by_sigterm_at_last(seconds: float, status: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(seconds)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    start = time.monotonic()
    for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGTERM):
        process.send_signal(number)
    assert process.wait(20) == status
    assert time.monotonic() - start >= min(seconds, 1.0) - 0.1
    process.stdout.close()
