"""An exception on any rank ends the whole job, fast and readably."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Protocol

from psopt.crew.base import WorkerFailed
from psopt.crew.supervisor import Notes
from psopt.obituary import FAILED
from psopt.processes import kill_children
from psopt.record import RecordError

_TO_BE_ENDED = 2.0  # seconds in which a dead rank's supervisor names it, and the launcher ends all

_HEARD = 0.3  # seconds in which the last words of a rank get to mpirun


class Abortable(Protocol):
    """The part of a world that ends a job.

    Attributes:
        failure: what a call raises that another rank's death makes fail.
        deserted: a rank is still there that does not answer, so that MPI cannot end in order.
    """

    rank: int
    failure: tuple[type[Exception], ...]
    deserted: bool

    def abort(self, status: int) -> None: ...


def guarded(
    world: Abortable,
    body: Callable[[], int],
    notes: Notes | None = None,
    confess: Callable[[str], None] = lambda cause: None,
) -> int:
    """Run ``body`` on this rank; whatever leaves it other than a return ends every rank.

    ``sys.exit`` in the middle counts too, with any status: the other ranks would wait for this one
    forever.

    Args:
        world: the ranks.
        body: what this rank does.
        notes: to the rank's supervisor.
        confess: tells the coordinator the cause, and leaves it a moment to record it.

    Returns:
        The body's exit status.
    """
    notes, process = notes or Notes(), os.getpid()
    try:
        status = body()
    except BaseException as error:
        _no_more_interrupts()
        if os.getpid() != process:
            _end_in_child(error, world.rank, process, notes)
        if isinstance(error, world.failure):  # the other end is gone: it is to blame, if it can be
            time.sleep(_TO_BE_ENDED)
        try:
            _say(describe(error, world.rank))
            notes.failed()
            kill_children()
            confess(f"{who(world.rank)}: {cause_of(error)}")
        finally:
            _abort(world, 1)
        raise
    notes.finished(status)
    if world.deserted:
        _abort(world, status)
    return status


def _abort(world: Abortable, status: int) -> None:
    """End all ranks, once mpirun has passed on what this one has said: an abort overtakes it."""
    time.sleep(_HEARD)
    world.abort(status)


def describe(error: BaseException, rank: int) -> str:
    """Traceback, where it helps, and one line that says which rank ended the job, and why."""
    if isinstance(error, WorkerFailed):  # the worker has printed its traceback
        return f"psopt: {who(rank)} ends the job: {error}"
    trace = "" if isinstance(error, KeyboardInterrupt | RecordError) else _trace(error)
    return f"{trace}psopt: {who(rank)} {FAILED}: {cause_of(error)}"


def cause_of(error: BaseException) -> str:
    """The error in a line or a few."""
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r}) before the job was complete"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, RecordError):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()


def who(rank: int) -> str:
    """``rank 2 (worker 1) on host``."""
    role = "coordinator" if rank == 0 else f"worker {rank - 1}"
    return f"rank {rank} ({role}) on {socket.gethostname()}"


def _end_in_child(error: BaseException, rank: int, process: int, notes: Notes) -> None:
    """End a process that the rank has forked, and the rank with it; MPI works in the rank only.

    A child that calls ``sys.exit(0)`` has done its work.
    """
    if isinstance(error, SystemExit) and error.code in (None, 0):
        os._exit(0)
    child = f"process {os.getpid()}, a child of {who(rank)},"
    _say(f"{_trace(error)}psopt: {child} {FAILED}: {cause_of(error)}")
    notes.failed()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    os._exit(1)


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _say(text: str) -> None:
    """Print to stderr, whatever has become of it."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout is not None:
            sys.stdout.flush()


def _no_more_interrupts() -> None:
    """What follows is the end already."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
