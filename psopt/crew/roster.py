"""Who of the workers is there, and who has which tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from psopt.crew.base import Task

ALL_GONE = "all workers are gone; resume from the last checkpoint"
GONE_AMONG_PEERS = "a worker is gone in rounds among the workers; resume from the last checkpoint"

Numbered = tuple[int, Task]
"""A task with its serial number."""


class Roster:
    """The live workers of a crew.

    Args:
        workers: how many there are at first.

    Attributes:
        workers: ids of the live ones, in order.
        open: tasks that a worker has not answered, oldest first.
        idle: workers that owe no reply to ``collect``, longest free first.
        held: version that a worker holds.
        losses: of workers that are gone, what they had; for whoever deals it out again.
    """

    def __init__(self, workers: int) -> None:
        self.workers: tuple[int, ...] = tuple(range(workers))
        self.open: dict[int, deque[Numbered]] = {w: deque() for w in self.workers}
        self.idle: dict[int, None] = dict.fromkeys(self.workers)
        self.held: dict[int, int] = {}
        self.losses: list[tuple[int, Sequence[Numbered]]] = []
        self._owed = dict.fromkeys(self.workers, 0)  # submitted, and not yet collected

    def submit(self, worker: int) -> None:
        """A task was submitted to ``worker``."""
        self._owed[worker] += 1
        self.idle.pop(worker, None)

    def collect(self, worker: int) -> None:
        """A reply of ``worker``, who may be gone, was handed over."""
        if worker in self._owed:
            self._owed[worker] -= 1
            if not self._owed[worker]:
                self.idle[worker] = None

    @property
    def all_idle(self) -> bool:
        """Whether nobody owes a reply."""
        return len(self.idle) == len(self.workers)

    def doing(self, serial: int) -> int:
        """Who has task ``serial``."""
        return next(w for w, tasks in self.open.items() if any(s == serial for s, _ in tasks))

    def bury(self, gone: Collection[int]) -> bool:
        """Take out those of ``gone`` that are still there; whether there were any."""
        dead = [worker for worker in self.workers if worker in gone]
        for worker in dead:
            self.losses.append((worker, self.open.pop(worker)))
            self.idle.pop(worker, None)
            self.held.pop(worker, None)
            del self._owed[worker]
        self.workers = tuple(worker for worker in self.workers if worker not in dead)
        return bool(dead)
