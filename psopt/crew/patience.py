"""How long a crew waits for a worker's reply: learnt from what that worker has needed before.

A worker that computes cannot answer, so silence alone says nothing. What it needs for a kind of task
is known, though: a reply is overdue after ``factor`` times the longest that the worker took for such a
task lately, and never before ``least`` seconds. The longest is forgotten slowly, so one slow task
makes the crew patient for a while, not for good. The first task of a kind has ``first`` seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass

from psopt.replica.tasks import Task

_SOON = 10.0  # seconds that any host has to answer at once
_FORGOTTEN = 0.02  # share of the longest that a quicker reply takes off


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait.

    Attributes:
        factor: times the longest.
        least: seconds.
        first: seconds for the first task of its kind.
    """

    factor: float
    least: float
    first: float


@dataclass(frozen=True, slots=True)
class Terms:
    """How the loss of a worker is taken.

    Attributes:
        goes_on: the job goes on with the others.
        patience: until a worker that does not answer counts as lost; None: for ever.
        warn: says something loudly; a loss is said at once.
        outlives: MPI goes on without a rank that has ended, so that one which fails may do so.
    """

    goes_on: bool = False
    patience: Patience | None = None
    warn: Callable[[str], None] = lambda message: None
    outlives: bool = False


@dataclass(frozen=True, slots=True)
class _Watch:
    """What a worker is doing: since when, and until when that is fine."""

    kind: type[Task]
    since: float
    until: float


class Watches:
    """One watch for each worker that is doing something.

    Args:
        patience: None to wait for ever.
    """

    def __init__(self, patience: Patience | None) -> None:
        self._patience = patience
        self._longest: dict[tuple[int, type[Task]], float] = {}
        self._running: dict[int, _Watch] = {}
        self._due: list[tuple[float, int]] = []  # those of replies that have come are passed over

    def begin(self, worker: int, task: Task, now: float, *, soon: bool = False) -> None:
        """``worker`` is doing ``task`` from ``now`` on; one that is done ``soon`` has the least time, or 10 s."""
        if self._patience is not None:
            kind = type(task)
            allowed = max(self._patience.least, _SOON) if soon else self._allowed(worker, kind)
            self._start(worker, _Watch(kind, now, now + allowed))

    def end(self, worker: int, now: float) -> None:
        """Its reply has come."""
        if (watch := self._running.pop(worker, None)) is not None:
            key, seconds = (worker, watch.kind), now - watch.since
            longest = self._longest.get(key, 0.0)
            self._longest[key] = max(seconds, longest + _FORGOTTEN * (seconds - longest))

    def forget(self, worker: int) -> None:
        """It is gone."""
        self._running.pop(worker, None)

    def overdue(self, now: float) -> list[int]:
        """Workers whose reply should have come, in order of their deadlines."""
        late = []
        while self.next() <= now:
            late.append(heapq.heappop(self._due)[1])
        for worker in late:
            heapq.heappush(self._due, (self._running[worker].until, worker))
        return late

    def next(self) -> float:
        """When the first reply becomes overdue."""
        while self._due:
            until, worker = self._due[0]
            watch = self._running.get(worker)
            if watch is not None and watch.until == until:
                return until
            heapq.heappop(self._due)
        return float("inf")

    def extend(self, workers: Collection[int], now: float) -> None:
        """They are alive: as long again as they have had already."""
        for worker in workers:
            watch = self._running[worker]
            self._start(worker, _Watch(watch.kind, watch.since, 2 * now - watch.since))

    def _start(self, worker: int, watch: _Watch) -> None:
        self._running[worker] = watch
        heapq.heappush(self._due, (watch.until, worker))

    def most(self, seconds: float) -> float:
        """How long a worker may take for a round that takes it ``seconds``."""
        if self._patience is None:
            return float("inf")
        return max(self._patience.least, self._patience.factor * seconds)

    def why(self, worker: int, now: float) -> str:
        """What to say of an overdue worker."""
        watch = self._running[worker]
        longest = self._longest.get((worker, watch.kind))
        usual = (
            "its first of the kind"
            if longest is None
            else f"its longest lately took {longest:.3g} s"
        )
        kind = watch.kind.__name__
        return f"has not answered for {now - watch.since:.3g} s ({kind} task; {usual})"

    def _allowed(self, worker: int, kind: type[Task]) -> float:
        assert self._patience is not None
        if (longest := self._longest.get((worker, kind))) is None:
            return max(self._patience.least, self._patience.first)
        return max(self._patience.least, self._patience.factor * longest)
