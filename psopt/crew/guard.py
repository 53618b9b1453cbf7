"""An exception on any rank ends the whole job, fast and readably."""

from __future__ import annotations

import socket
import sys
import traceback
from collections.abc import Callable
from typing import Protocol

from psopt.crew.process import kill_children


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
