"""Who still answers: the coordinator's watch over its workers, kept while it waits for anything.

A worker is lost when its process has died, where MPI survives that; when it says that it fails; when its
reply is overdue (``psopt.crew.patience``); or when somebody else says so. One that is overdue is
*evicted*: it is told to leave, and what it sends from then on is received and thrown away. Workers in
rounds wait for each other, so all of these are overdue when one is; those that still answer a ping stay.

The patience is that of a clock on which no time passes while the coordinator itself does not run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from psopt.crew.base import Fetch, Rounds, WorkerLost
from psopt.crew.nap import Nap
from psopt.crew.patience import Terms
from psopt.crew.roster import DIED, Roster
from psopt.crew.wire import Damaged, Outgoing, RankGone, Tag, Wire

_STEP = 1.0  # seconds at most between two looks, as far as patience is concerned
_LOOK = 0.05  # seconds between looks at what is overdue
_INTRODUCTION = Fetch(-1)  # what a worker that has not said who it is counts as doing
_LAST_WORD = Fetch(-2)
_PONG = 5.0  # seconds at most in which a worker in rounds answers a ping
_LEAVE = 1.0  # seconds that evicted workers have to leave at the end


class Vigil:
    """Over the workers of a roster.

    Args:
        wire: connects the ranks.
        roster: who is there, and has what.
        terms: of losses.

    Attributes:
        now: seconds of patience that have passed.
        evicted: workers that were told to leave and have not left.
        late: replies of evicted workers that were refused.
        void: messages from and to workers that are gone; MPI may still use their memory.
    """

    def __init__(self, wire: Wire, roster: Roster, terms: Terms) -> None:
        self._wire, self._roster, self._terms = wire, roster, terms
        self.evicted: set[int] = set()
        self.late = 0
        self.void: list[Outgoing] = []
        self.now = 0.0
        self._looked = time.perf_counter()

    def expect(self) -> None:
        """All are to introduce themselves."""
        for worker in self._roster.workers:
            self._roster.watches.begin(worker, _INTRODUCTION, self.now)

    def met(self) -> None:
        """They have."""
        for worker in self._roster.workers:
            self._roster.watches.forget(worker)
        self._looked = time.perf_counter()

    def rest(self, nap: Nap) -> None:
        """A look round, and a nap."""
        self.hear_failure()
        if not self.mourn() and time.perf_counter() - self._looked > _LOOK:
            self._look_once()
            if late := self._roster.watches.overdue(self.now):
                self._evict_silent(late)
        nap()

    def evict(self, worker: int, why: str) -> None:
        """Go on without ``worker``; what it had is in the roster's ``losses``.

        Raises:
            WorkerLost: the job does not go on without a worker.
        """
        self._look_once()  # a worker that has died need not be told
        if not self._roster.bury([worker], why):
            return
        self.evicted.add(worker)
        self.say_goodbye(worker)
        if not self._terms.goes_on:
            raise WorkerLost(f"worker {worker} {why}")

    def break_off(self, members: Sequence[int], meeting: int) -> None:
        """Have ``members`` leave rounds that one of them cannot bring to an end."""
        for member in members:
            if member + 1 not in self._wire.gone:
                self.void.append(self._wire.send(member + 1, (Tag.BREAK, Tag.BREAK), meeting, ()))

    def say_goodbye(self, worker: int) -> None:
        """Tell a worker to leave; one that is there has a while for its last word."""
        if worker in self._roster.open:
            self._roster.watches.begin(worker, _LAST_WORD, self.now, soon=True)
        self.void.append(self._wire.send(worker + 1, (Tag.TASK, Tag.TASK_VECTOR), None, ()))

    def see_off(self) -> None:
        """Wait a moment for those who were evicted to leave."""
        nap, end = Nap(), time.perf_counter() + _LEAVE
        while self.evicted and time.perf_counter() < end:
            if (found := self._wire.probe(None, Tag.REPLY)) is not None:
                self.refuse(*found)
            self._look_once()
            nap()

    def refuse(self, source: int, size: int) -> None:
        """Throw away what a worker that is gone has sent: a late reply, or its last word."""
        try:
            content, specs = self._wire.header(source, Tag.REPLY, size)
            self.void.append(self._wire.swallow(source, Tag.REPLY_VECTOR, specs))
        except (RankGone, Damaged):
            return
        if isinstance(content, tuple):
            self.late += 1
            self._terms.warn(f"worker {source - 1} is gone already: its late reply is refused")
        else:
            self.evicted.discard(source - 1)

    def hear_failure(self) -> None:
        """See whether a worker fails; where it may, it is lost.

        Raises:
            WorkerFailed: one does, and MPI ends with it.
        """
        if not self._terms.outlives:
            self._wire.raise_failure()
        elif (found := self._wire.probe(None, Tag.FAILURE)) is not None:
            self._roster.bury([found[0] - 1], f"has failed ({self._wire.cause(*found)})")

    def _look_once(self) -> None:
        """Who has died, and how much patience has been used up."""
        self._wire.look()
        self.mourn()
        now = time.perf_counter()
        self.now += min(_STEP, now - self._looked)
        self._looked = now

    def _evict_silent(self, late: Sequence[int]) -> None:
        """Evict those of ``late`` that are to blame."""
        whys = {worker: self._roster.watches.why(worker, self.now) for worker in late}
        doing = self._roster.open
        in_rounds = [w for w in late if doing[w] and isinstance(doing[w][0][1], Rounds)]
        answered = {w for w in late if self._wire.probe(w + 1, Tag.REPLY) is not None}
        alive = answered | self._that_answer([w for w in in_rounds if w not in answered])
        self._roster.watches.extend(alive, self.now)
        for worker in late:
            if worker not in alive:
                self.evict(worker, whys[worker])

    def _that_answer(self, workers: Sequence[int]) -> set[int]:
        """Workers in rounds that answer a ping soon."""
        for worker in workers:
            self.void.append(self._wire.send(worker + 1, (Tag.PING, Tag.PING), None, ()))
        alive: set[int] = set()
        nap, end = Nap(), time.perf_counter() + _PONG
        while len(alive) < len(workers) and time.perf_counter() < end:
            if (found := self._wire.probe(None, Tag.PONG)) is not None:
                self._wire.discard(found[0], Tag.PONG, found[1])
                alive.add(found[0] - 1)
            nap()
        return alive & set(workers)

    def mourn(self) -> bool:
        """See whether workers have died; what they had is in the roster's ``losses`` then."""
        gone = [rank - 1 for rank in self._wire.gone]
        self.evicted.difference_update(gone)
        return bool(gone) and self._roster.bury(gone, DIED)
