"""Processes that end together: what launcher, supervisors and ranks ask of the kernel about each other.

Whoever imports this has nothing large loaded by it. The calls of ``prctl`` are Linux; elsewhere
they do nothing, and only speed or clean-up differ.
"""

from __future__ import annotations

import contextlib
import ctypes

import psutil

_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK, _PR_SET_CHILD_SUBREAPER = 1, 29, 36


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
