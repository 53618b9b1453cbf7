"""How a rank waits: a short spin for what is about to come, then naps that grow with the time waited.

Ranks usually outnumber cores on a workstation, and a rank that spins takes a core from one that
computes. A nap is a sixteenth of the time waited so far, so waiting costs at most about 6 % more
than spinning would, and an idle rank soon wakes two hundred times a second only. Linux lets a timer
be 50 microseconds late, more than the shortest naps themselves, unless ``fine_timers`` was called.
"""

from __future__ import annotations

import os
import time

_SPIN = 50e-6
_SHORTEST = 20e-6
_LONGEST = 5e-3


class Nap:
    """Call it each time there is nothing to do; ``reset`` when there was."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def reset(self) -> None:
        """Something happened: spin again first."""
        self._since = time.perf_counter()

    def __call__(self) -> None:
        """Yield the processor, or sleep."""
        waited = time.perf_counter() - self._since
        if waited < _SPIN:
            os.sched_yield()
        else:
            time.sleep(min(_LONGEST, max(_SHORTEST, waited / 16)))
