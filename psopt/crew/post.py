"""The coordinator's post: tasks go out, replies come in, and who does not answer any more is found out.

All waiting on real ranks is done here, and nothing waits for ever: while it waits the coordinator looks
for workers that fail, that have died, and whose reply is overdue (``psopt.crew.patience``). One that is
overdue is *evicted*: it is told to leave, what it sends from then on is received and thrown away, and
what it had is for others. Workers in rounds wait for each other, so all of these are overdue when
one is; those that still answer a ping stay.

The patience is that of a clock on which no time passes while the coordinator itself does not run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psopt.crew.base import (
    DAMAGED_TASK,
    Observer,
    Reply,
    Rounds,
    Span,
    Task,
    Vectors,
    WorkerLost,
    needs_vectors,
)
from psopt.crew.meeting import meet
from psopt.crew.nap import Nap
from psopt.crew.patience import Terms
from psopt.crew.pool import Pool
from psopt.crew.roster import DAMAGED, DIED, Roster
from psopt.crew.wire import Outgoing, RankGone, Tag, Wire

NOWHERE: Mapping[int, Vectors] = {}
_STEP = 1.0  # seconds at most between two looks, as far as patience is concerned
_LOOK = 0.05  # seconds between looks at what is overdue
_PONG = 5.0  # seconds at most in which a worker in rounds answers a ping
_LEAVE = 1.0  # seconds that evicted workers have to leave at the end


class _Evicted(RuntimeError):  # noqa: N818 - reads as what happened
    """Somebody was evicted meanwhile."""


class Post:
    """Between rank 0 and the workers' ranks.

    Args:
        wire: connects the ranks.
        workers: how many there are.
        observer: is told where each rank's time goes.
        terms: of losses.

    Attributes:
        roster: who is there, and has what.
        pool: memory for the vectors of replies.
        published: vectors, and structure of those at their end, by version.
        evicted: workers that were told to leave and have not left.
        late: replies of evicted workers that were refused.
    """

    def __init__(self, wire: Wire, workers: int, observer: Observer, terms: Terms) -> None:
        self.roster, self.pool, self._terms = Roster(workers, terms.patience), Pool(), terms
        self.published: dict[int, tuple[Vectors, Any]] = {}
        self.evicted: set[int] = set()
        self.late = 0
        self._wire, self._observe = wire, observer
        self._origin = time.perf_counter()
        self._offsets = dict.fromkeys(range(workers), 0.0)
        self._leaving: dict[int, deque[tuple[int, Outgoing]]] = {}
        self._void: list[Outgoing] = []  # to and from evicted workers
        self._serial = 0
        self._patient = self._looked = 0.0

    def open(self) -> list[dict[str, Any]]:
        """Wait for every worker's introduction and set the clocks by it."""
        introductions, self._offsets = meet(self._wire, self.roster.workers, self._await)
        self._origin = self._looked = time.perf_counter()
        return introductions

    def now(self) -> float:
        """Seconds since the crew opened."""
        return time.perf_counter() - self._origin

    def send(self, worker: int, task: Task) -> int:
        """Send ``task``, with its version's vectors when the worker does not hold them; its serial number."""
        vectors: Vectors = ()
        structure: Any = None
        if needs_vectors(task, self.roster.held.get(worker)):
            vectors, structure = self.published[task.version]
        self._serial += 1
        header = (self._serial, task, structure)
        outgoing = self._wire.send(worker + 1, (Tag.TASK, Tag.TASK_VECTOR), header, vectors)
        leaving = self._leaving.setdefault(task.version, deque())
        while leaving and leaving[0][1].done():
            leaving.popleft()
        leaving.append((worker, outgoing))
        self.roster.held[worker] = task.version
        self.roster.given(worker, self._serial, task, self._patient)
        return self._serial

    def retire(self, version: int) -> None:
        """Returns once nothing of ``version`` is on its way to a worker that counts."""
        for worker, outgoing in self._leaving.pop(version, ()):
            nap = Nap()
            while worker in self.roster.open and not outgoing.done():
                self._rest(nap)
            if not outgoing.done():
                self._void.append(outgoing)
        self.published.pop(version, None)

    def receive(
        self, worker: int | None, places: Mapping[int, Vectors] = NOWHERE
    ) -> tuple[int, Reply] | None:
        """The next reply (of ``worker``), vectors of a serial in ``places``; None: workers were lost instead."""
        if self.roster.losses:
            return None
        while (found := self._await(None if worker is None else worker + 1, Tag.REPLY)) is not None:
            if found[0] - 1 not in self.roster.open:
                self._refuse(*found)
                continue
            try:
                return self._take_in(*found, places)
            except RankGone:
                self._mourn()
                break
            except _Evicted:
                break
        return None

    def evict(self, worker: int, why: str) -> None:
        """Go on without ``worker``; what it had is in the roster's ``losses``.

        Raises:
            WorkerLost: the job does not go on without a worker.
        """
        self._look_once()  # a worker that has died need not be told
        if not self.roster.bury([worker], why):
            return
        self.evicted.add(worker)
        self._say_goodbye(worker)
        if not self._terms.goes_on:
            raise WorkerLost(f"worker {worker} {why}")

    def break_off(self, members: Sequence[int], meeting: int) -> None:
        """Have ``members`` leave rounds that one of them cannot bring to an end."""
        for member in members:
            if member + 1 not in self._wire.gone:
                self._void.append(self._wire.send(member + 1, (Tag.BREAK, Tag.BREAK), meeting, ()))

    def close(self) -> None:
        """Take in what is owed, then stop the workers and take their last spans.

        Where one was evicted and the job does not go on, the others may wait for it: they are not
        waited for.
        """
        if self.evicted and not self._terms.goes_on:
            return
        while any(self.roster.open.values()):
            if (came := self.receive(None)) is not None:
                self.pool.release(came[1].result.vectors)
            else:
                self.roster.losses.clear()
        for worker in self.roster.workers:
            self._say_goodbye(worker)
        for worker in self.roster.workers:
            nap, rank = Nap(), worker + 1
            while (found := self._wire.probe(rank, Tag.REPLY)) is None:
                if rank in self._wire.gone:  # it has ended, with or without a last word
                    break
                self._wire.raise_failure()
                nap()
            else:
                self._record(worker, self._wire.header(found[0], Tag.REPLY, found[1])[0])
        nap, end = Nap(), time.perf_counter() + _LEAVE
        while self.evicted and time.perf_counter() < end:
            if (found := self._wire.probe(None, Tag.REPLY)) is not None:
                self._refuse(*found)
            self._look_once()
            nap()

    def _say_goodbye(self, worker: int) -> None:
        self._void.append(self._wire.send(worker + 1, (Tag.TASK, Tag.TASK_VECTOR), None, ()))

    def _refuse(self, source: int, size: int) -> None:
        """Throw away what a worker that is gone has sent: a late reply, or its last word."""
        try:
            content, specs = self._wire.header(source, Tag.REPLY, size)
            self._void.append(self._wire.swallow(source, Tag.REPLY_VECTOR, specs))
        except RankGone:
            return
        if isinstance(content, tuple):
            self.late += 1
            self._terms.warn(f"worker {source - 1} is gone already: its late reply is refused")
        else:
            self.evicted.discard(source - 1)

    def _take_in(self, source: int, size: int, places: Mapping[int, Vectors]) -> tuple[int, Reply]:
        """A reply whose header has come."""
        worker = source - 1
        start = self.now()
        (serial, result, spans), specs = self._wire.header(source, Tag.REPLY, size)
        expected, task = self.roster.open[worker][0]
        if serial != expected:
            raise RuntimeError(f"worker {worker} answered task {serial}, not task {expected}")
        place = self._place(serial, places) or (self.pool.take() if specs else ())
        vectors, coming = self._wire.start_vectors(source, Tag.REPLY_VECTOR, specs, place)
        nap = Nap()
        while not coming.done():
            self._rest(nap)
            if worker not in self.roster.open:
                self._void.append(coming)
                raise _Evicted
        if source in self._wire.gone:
            raise RankGone(source)
        if result.version == DAMAGED_TASK or not self._wire.intact(specs, vectors):
            self.evict(worker, DAMAGED)
            raise _Evicted
        self.roster.answered(worker, self._patient)
        if specs:
            self._observe(0, ("receive", start, self.now()))
        self._record(worker, spans)
        return serial, Reply(worker, task, replace(result, vectors=vectors))

    def _place(self, serial: int, places: Mapping[int, Vectors]) -> Vectors:
        """Memory of the caller; not where an evicted worker could still write to it later on."""
        evicts = self._terms.goes_on and self._terms.patience is not None
        return () if evicts else places.get(serial, ())

    def _await(self, source: int | None, tag: Tag) -> tuple[int, int] | None:
        """Sleep until a message has come; (source, header size). None: workers are gone."""
        nap, start = Nap(), self.now()
        while (found := self._wire.probe(source, tag)) is None:
            self._rest(nap)
            if self.roster.losses:
                return None
        self._observe(0, ("wait", start, self.now()))
        return found

    def _rest(self, nap: Nap) -> None:
        """A look round, and a nap."""
        self._wire.raise_failure()
        if not self._mourn() and time.perf_counter() - self._looked > _LOOK:
            self._look_once()
            if late := self.roster.watches.overdue(self._patient):
                self._evict_silent(late)
        nap()

    def _look_once(self) -> None:
        """Who has died, and how much patience has been used up."""
        self._mourn()
        now = time.perf_counter()
        self._patient += min(_STEP, now - self._looked)
        self._looked = now

    def _evict_silent(self, late: Sequence[int]) -> None:
        """Evict those of ``late`` that are to blame."""
        whys = {worker: self.roster.watches.why(worker, self._patient) for worker in late}
        in_rounds = [w for w in late if isinstance(self.roster.open[w][0][1], Rounds)]
        answered = {w for w in late if self._wire.probe(w + 1, Tag.REPLY) is not None}
        alive = answered | self._that_answer([w for w in in_rounds if w not in answered])
        self.roster.watches.extend(alive, self._patient)
        for worker in late:
            if worker not in alive:
                self.evict(worker, whys[worker])

    def _that_answer(self, workers: Sequence[int]) -> set[int]:
        """Workers in rounds that answer a ping soon."""
        for worker in workers:
            self._void.append(self._wire.send(worker + 1, (Tag.PING, Tag.PING), None, ()))
        alive: set[int] = set()
        nap, end = Nap(), time.perf_counter() + _PONG
        while len(alive) < len(workers) and time.perf_counter() < end:
            if (found := self._wire.probe(None, Tag.PONG)) is not None:
                self._wire.header(found[0], Tag.PONG, found[1])
                alive.add(found[0] - 1)
            nap()
        return alive & set(workers)

    def _mourn(self) -> bool:
        """See whether workers have died; what they had is in the roster's ``losses`` then."""
        gone = [rank - 1 for rank in self._wire.gone]
        self.evicted.difference_update(gone)
        return bool(gone) and self.roster.bury(gone, DIED)

    def _record(self, worker: int, spans: Sequence[Span]) -> None:
        """Pass a worker's spans on, on the coordinator's clock."""
        shift = self._offsets[worker] - self._origin
        for kind, start, end in spans:
            self._observe(worker + 1, (kind, start + shift, end + shift))
