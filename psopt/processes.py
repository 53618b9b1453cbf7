"""Processes that end together: what launcher, supervisors and ranks ask of the kernel about each other.

Whoever imports this has nothing large loaded by it. The calls of ``prctl`` are Linux; elsewhere
they do nothing, and only speed or clean-up differ.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping

import psutil

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
"""In which mpirun, or srun, tells a process its rank."""

_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK, _PR_SET_CHILD_SUBREAPER = 1, 29, 36


def rank_of(environ: Mapping[str, str]) -> str | None:
    """The rank of a process, where that is told before MPI begins."""
    return next((environ[name] for name in RANK_VARIABLES if name in environ), None)


def signal_at_parents_death(number: int) -> None:
    """Have the kernel send this process a signal when the one that started it dies."""
    _prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Have descendants whose parent dies become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def fine_timers() -> None:
    """Let short sleeps end on time (they are rounded up by 50 microseconds by default)."""
    _prctl(_PR_SET_TIMERSLACK, 1000)


def kill_children() -> list[psutil.Process]:
    """Kill the processes that this one has started (data loaders, subprocesses), and theirs; which."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    return children


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
