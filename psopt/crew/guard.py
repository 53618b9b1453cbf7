"""An exception on any rank ends the whole job, fast and readably; a rank never outlives its launcher."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Protocol

import psutil

_PR_SET_PDEATHSIG = 1


class Abortable(Protocol):
    """The part of a world that ends a job."""

    rank: int

    def abort(self, status: int) -> None: ...


def guarded(world: Abortable, body: Callable[[], int]) -> int:
    """Run ``body`` on this rank; whatever leaves it other than a return ends every rank.

    ``sys.exit`` in the middle counts too, with any status: the other ranks would wait for this one
    forever.

    Returns:
        The body's exit status.
    """
    try:
        return body()
    except BaseException as error:
        print(describe(error, world.rank), file=sys.stderr, flush=True)
        sys.stdout.flush()
        kill_children()
        world.abort(1)
        raise


def describe(error: BaseException, rank: int) -> str:
    """Traceback and one line that says which rank ended the job, and why."""
    who = f"rank {rank} ({'coordinator' if rank == 0 else f'worker {rank - 1}'}) on {socket.gethostname()}"
    if isinstance(error, SystemExit):
        cause = f"sys.exit({error.code!r}) before the job was complete"
    elif isinstance(error, KeyboardInterrupt):
        cause = "interrupted"
    else:
        cause = "".join(traceback.format_exception_only(error)).strip()
    trace = "".join(traceback.format_exception(error))
    return f"{trace}psopt: {who} failed, the job ends: {cause}"


def kill_children() -> None:
    """Kill the processes that this rank has started (data loaders, subprocesses), and theirs."""
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue


def die_with_parent() -> None:
    """Have the kernel kill this rank when the daemon that started it dies (Linux)."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (AttributeError, OSError):  # elsewhere the launcher's own clean-up has to do
        return
    if os.getppid() == 1 and "PSOPT_LAUNCHED" in os.environ:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)
