"""Replies that are not finite, of which nobody can say by themselves whose fault that is.

A gradient that is not a number may be the objective's, or that of a worker with a fault in its memory.
Tasks name everything that they depend on, so another worker's reply has the same bits if both are
sound: the task is given to a second one, whose answer stands. Where that is finite, the first is
*disproved*.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from psopt.crew.base import Buffers, Gradient, LocalSolve, Probe, Reply, ShardGradient, Task
from psopt.crew.roster import Roster

_DOUBTED = (Gradient, ShardGradient, LocalSolve, Probe, Buffers)

GiveAgain = Callable[[int, Task, int], int]
"""Gives a worker a task under the serial number that it had; the number."""


class Doubts:
    """Over the replies that a crew gathers by itself.

    Args:
        roster: who is there.
        give: gives a task out once more.
    """

    def __init__(self, roster: Roster, give: GiveAgain) -> None:
        self._roster, self._give = roster, give
        self._first: dict[int, int] = {}
        self._disproved: list[int] = []

    def heard(self, serial: int, reply: Reply) -> Reply | None:
        """The reply that stands; None where the task is with another worker now, or its own if it is alone.

        One that a second worker has confirmed is still the first one's.
        """
        if not isinstance(reply.task, _DOUBTED):
            return reply
        sound = all(tally.finite and math.isfinite(tally.loss) for tally in reply.result.tallies)
        first = self._first.pop(serial, None)
        if first is not None:
            if sound:
                self._disproved.append(first)
                return reply
            return replace(reply, worker=first)
        if sound or (second := second_to(reply.worker, self._roster.workers)) is None:
            return reply
        self._first[serial] = reply.worker
        self._give(second, reply.task, serial)
        return None

    def take(self) -> list[int]:
        """Who was disproved since the last call."""
        found, self._disproved = self._disproved, []
        return found


def second_to(worker: int, workers: tuple[int, ...]) -> int | None:
    """Who is to do again what ``worker`` has done: the next one, or itself if it is alone; None: nobody is left."""
    if not workers:
        return None
    return next((other for other in workers if other > worker), workers[0])
