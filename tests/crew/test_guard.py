"""What leaves a rank's body, other than by a return, ends the job, with a cause that can be read."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from psopt.crew.base import WorkerFailed
from psopt.crew.guard import guarded
from psopt.crew.supervisor import Notes

HOST = socket.gethostname()
FAILED = f"psopt: rank 2 (worker 1) on {HOST} failed, the job ends: "


class World:
    failure = (ConnectionError,)
    deserted = False

    def __init__(self, rank: int = 2) -> None:
        self.rank = rank
        self.aborted: list[int] = []

    def abort(self, status: int) -> None:
        self.aborted.append(status)


@pytest.fixture(autouse=True)
def _interrupts_stay_as_they_are() -> Any:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_body_that_returns(capfd: pytest.CaptureFixture[str]) -> None:
    world = World()
    assert guarded(world, lambda: 3) == 3
    assert world.aborted == []
    assert capfd.readouterr().err == ""


def fail() -> int:
    raise ValueError("two\nlines")


def interrupt() -> int:
    raise KeyboardInterrupt


def leave() -> int:
    sys.exit(0)


def pass_on() -> int:
    raise WorkerFailed("rank 1 (worker 0) on there: ValueError: this")


@pytest.mark.parametrize(
    ("body", "line", "trace"),
    [
        (fail, f"{FAILED}ValueError: two\nlines", True),
        (leave, f"{FAILED}sys.exit(0) before the job was complete", True),
        (interrupt, f"{FAILED}interrupted", False),
        (
            pass_on,
            f"psopt: rank 2 (worker 1) on {HOST} ends the job: rank 1 (worker 0) on there: "
            "ValueError: this",
            False,
        ),
    ],
)
def test_causes(
    body: Callable[[], int], line: str, trace: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    world, read_end, write_end = World(), *os.pipe()
    with pytest.raises(BaseException):  # noqa: B017 - the body's own
        guarded(world, body, Notes(write_end))
    os.close(write_end)
    assert world.aborted == [1]
    err = capfd.readouterr().err
    assert err.endswith(f"{line}\n")
    assert ("Traceback" in err) == trace
    assert os.read(read_end, 100) == b"x1\n"
    os.close(read_end)


def test_the_coordinator_is_told_before_the_end() -> None:
    world, told = World(), []

    def confess(cause: str) -> None:
        assert world.aborted == []
        told.append(cause)
        raise RuntimeError("nobody there")

    with pytest.raises(RuntimeError):
        guarded(world, fail, confess=confess)
    assert told == [f"rank 2 (worker 1) on {HOST}: ValueError: two\nlines"]
    assert world.aborted == [1]


def test_a_failed_transfer_first_lets_the_dead_be_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another rank's death, mostly: this one is ended meanwhile, and has blamed nobody."""
    world, naps = World(), []

    said: list[str] = []

    def sleep(seconds: float) -> None:
        said.append(capfd.readouterr().err)
        assert world.aborted == []
        naps.append(seconds)

    def lose() -> int:
        raise ConnectionError("process_vm_readv failed (errno 3)")

    monkeypatch.setattr("psopt.crew.guard.time.sleep", sleep)
    with pytest.raises(ConnectionError):
        guarded(world, lose)
    assert naps == [2.0, 0.3]  # to be ended, and for its own words to get through
    assert said[0] == ""
    assert "failed, the job ends: ConnectionError: process_vm" in said[1]
    assert world.aborted == [1]


def test_last_words_come_before_the_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a body that returns, too, where MPI cannot end in order: mpirun would drop them."""
    world, naps = World(), list[tuple[float, list[int]]]()
    world.deserted = True
    monkeypatch.setattr(
        "psopt.crew.guard.time.sleep", lambda seconds: naps.append((seconds, [*world.aborted]))
    )
    assert guarded(world, lambda: 1) == 1
    assert (naps, world.aborted) == ([(0.3, [])], [1])


def test_no_interrupt_comes_between() -> None:
    world = World()

    def confess(cause: str) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(ValueError, match="two"):
        guarded(world, fail, confess=confess)
    assert world.aborted == [1]


CHILD = """
import os, sys, time
from psopt.crew.guard import guarded
class World:
    rank, failure, deserted = 2, (ConnectionError,), False
    def abort(self, status):
        print("abort", os.getpid() == rank, flush=True)
rank = os.getpid()
def body():
    if not os.fork():
        {child}
    time.sleep({seconds})
    return 0
sys.exit(guarded(World(), body))
"""


def test_a_child_that_fails_ends_the_rank() -> None:
    code = CHILD.format(child="raise ValueError('in child')", seconds=60)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == ""
    assert (
        f"a child of rank 2 (worker 1) on {HOST}, failed, the job ends: ValueError" in done.stderr
    )


def test_a_child_that_is_done() -> None:
    code = CHILD.format(child="sys.exit()", seconds=0.5)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
