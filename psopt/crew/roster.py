"""Who of the workers is there, who has which tasks, and who gets those of the dead: the same for both crews."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from psopt.crew.base import ALL_GONE, Lost, Reply, Task, WorkerLost, deal
from psopt.crew.patience import Terms, Watches

DIED = "has died"
DAMAGED = "is behind a connection on which a message arrived damaged"

Numbered = tuple[int, Task]
"""A task with its serial number."""

Give = Callable[[int, Task], int]
"""Gives a worker a task; the task's serial number."""


class Roster:
    """The live workers of a crew.

    Args:
        workers: how many there are at first.
        terms: of losses, which are told when they happen.

    Attributes:
        workers: ids of the live ones, in order.
        open: tasks that a worker has not answered, oldest first.
        idle: workers that owe no reply to ``collect``, longest free first.
        held: version that a worker holds.
        losses: of workers that are gone, what they had, until ``deal_again``.
        kept: what ``collect`` is to hand over.
        watches: over what each worker is doing.
        fates: why a worker is gone.
    """

    def __init__(self, workers: int, terms: Terms | None = None) -> None:
        self._terms = terms or Terms()
        self.workers: tuple[int, ...] = tuple(range(workers))
        self.open: dict[int, deque[Numbered]] = {w: deque() for w in self.workers}
        self.idle: dict[int, None] = dict.fromkeys(self.workers)
        self.held: dict[int, int] = {}
        self.losses: list[tuple[int, Sequence[Numbered]]] = []
        self.kept: deque[Reply | Lost] = deque()
        self.watches = Watches(self._terms.patience)
        self.fates: dict[int, str] = {}
        self._owed = dict.fromkeys(self.workers, 0)  # submitted, and not yet collected

    def given(self, worker: int, serial: int, task: Task, now: float) -> None:
        """``worker`` was given a task, which it does after the others that it has."""
        tasks = self.open[worker]
        tasks.append((serial, task))
        if len(tasks) == 1:
            self.watches.begin(worker, task, now)

    def answered(self, worker: int, now: float) -> Numbered:
        """The task that ``worker``'s reply is to."""
        tasks = self.open[worker]
        done = tasks.popleft()
        self.watches.end(worker, now)
        if tasks:
            self.watches.begin(worker, tasks[0][1], now)
        return done

    def submit(self, worker: int) -> None:
        """A task was submitted to ``worker``."""
        self._owed[worker] += 1
        self.idle.pop(worker, None)

    def collect(self) -> Reply | Lost:
        """The oldest of ``kept``; the worker of a reply, who may be gone, owes one less."""
        found = self.kept.popleft()
        worker = found.worker
        if isinstance(found, Reply) and worker in self._owed:
            self._owed[worker] -= 1
            if not self._owed[worker]:
                self.idle[worker] = None
        return found

    def blocks(self, items: int) -> list[tuple[int, range]]:
        """Contiguous blocks for the workers.

        Raises:
            WorkerLost: there is no worker.
        """
        if not self.workers:
            raise WorkerLost(ALL_GONE)
        return list(zip(self.workers, deal(items, len(self.workers)), strict=True))

    def deal_out(self, tasks: Sequence[tuple[int, Task]], give: Give) -> dict[int, int]:
        """Give tasks, with their positions, to the workers in blocks; position by serial number."""
        wanted: dict[int, int] = {}
        for worker, block in self.blocks(len(tasks)):
            wanted |= {give(worker, tasks[k][1]): tasks[k][0] for k in block}
        return wanted

    def deal_again(self, wanted: dict[int, int], give: Give) -> None:
        """Give what the dead had of ``wanted`` to others; the rest of theirs is for ``collect``."""
        losses, self.losses = self.losses, []
        for worker, lost in losses:
            if owed := tuple(task for serial, task in lost if serial not in wanted):
                self.kept.append(Lost(worker, owed))
            if again := [(wanted.pop(s), task) for s, task in lost if s in wanted]:
                wanted |= self.deal_out(again, give)

    @property
    def all_idle(self) -> bool:
        """Whether nobody owes a reply."""
        return len(self.idle) == len(self.workers)

    def doing(self, serial: int) -> int:
        """Who has task ``serial``."""
        return next(w for w, tasks in self.open.items() if any(s == serial for s, _ in tasks))

    def bury(self, gone: Collection[int], why: str) -> bool:
        """Take out those of ``gone`` that are still there, and say why; whether there were any."""
        dead = [worker for worker in self.workers if worker in gone]
        for worker in dead:
            self.fates[worker] = why
            self.watches.forget(worker)
            self.losses.append((worker, self.open.pop(worker)))
            self.idle.pop(worker, None)
            self.held.pop(worker, None)
            del self._owed[worker]
            self.workers = tuple(other for other in self.workers if other != worker)
            others = f"; {len(self.workers)} go on" if self._terms.goes_on else ""
            self._terms.warn(f"worker {worker} {why}{others}")
        return bool(dead)
