"""The coordinator's post: tasks go out to the workers' ranks, and replies come in.

All waiting on real ranks is done here, and nothing waits for ever: meanwhile the coordinator keeps its
vigil (``psopt.crew.vigil``), which takes out those who do not answer any more.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psopt.crew.base import (
    DAMAGED_TASK,
    Observer,
    Reply,
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
from psopt.crew.roster import DAMAGED, Roster
from psopt.crew.vigil import Vigil
from psopt.crew.wire import NO_SERIAL, Damaged, Outgoing, RankGone, Tag, Wire

NOWHERE: Mapping[int, Vectors] = {}


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
        vigil: over the workers.
    """

    def __init__(self, wire: Wire, workers: int, observer: Observer, terms: Terms) -> None:
        self.roster, self.pool, self._terms = Roster(workers, terms), Pool(), terms
        self.published: dict[int, tuple[Vectors, Any]] = {}
        self.vigil = Vigil(wire, self.roster, terms)
        self._wire, self._observe = wire, observer
        self._origin = time.perf_counter()
        self._offsets = dict.fromkeys(range(workers), 0.0)
        self._leaving: dict[int, deque[tuple[int, Outgoing]]] = {}
        self._serial = 0

    def open(self) -> list[dict[str, Any]]:
        """Wait for every worker's introduction and set the clocks by it."""
        self.vigil.expect()
        introductions, self._offsets = meet(self._wire, self.roster.workers, self._await)
        self.vigil.met()
        self._origin = time.perf_counter()
        return introductions

    def now(self) -> float:
        """Seconds since the crew opened."""
        return time.perf_counter() - self._origin

    def send(self, worker: int, task: Task, serial: int | None = None) -> int:
        """Send ``task``, with its version's vectors when the worker does not hold them.

        Returns:
            Its serial number: ``serial``, or a new one.
        """
        vectors: Vectors = ()
        structure: Any = None
        if needs_vectors(task, self.roster.held.get(worker)):
            vectors, structure = self.published[task.version]
        if serial is None:
            serial = self._serial = self._serial + 1
        header = (serial, task, structure)
        outgoing = self._wire.send(worker + 1, (Tag.TASK, Tag.TASK_VECTOR), header, vectors)
        leaving = self._leaving.setdefault(task.version, deque())
        while leaving and leaving[0][1].done():
            leaving.popleft()
        leaving.append((worker, outgoing))
        self.roster.held[worker] = task.version
        self.roster.given(worker, serial, task, self.vigil.now)
        return serial

    def retire(self, version: int) -> None:
        """Returns once nothing of ``version`` is on its way to a worker that counts."""
        for worker, outgoing in self._leaving.pop(version, ()):
            nap = Nap()
            while worker in self.roster.open and not outgoing.done():
                self.vigil.rest(nap)
            if not outgoing.done():
                self.vigil.void.append(outgoing)
        self.published.pop(version, None)

    def receive(
        self, worker: int | None, places: Mapping[int, Vectors] = NOWHERE
    ) -> tuple[int, Reply] | None:
        """The next reply (of ``worker``), vectors of a serial in ``places``; None: workers were lost instead."""
        if self.roster.losses:
            return None
        while (found := self._await(None if worker is None else worker + 1, Tag.REPLY)) is not None:
            if found[0] - 1 not in self.roster.open:
                self.vigil.refuse(*found)
                continue
            try:
                return self._take_in(*found, places)
            except RankGone:
                self.vigil.mourn()
                break
            except _Evicted:
                break
        return None

    def close(self) -> None:
        """Take in what is owed, then stop the workers and take their last spans.

        Where one was evicted and the job does not go on, the others may wait for it: they are not
        waited for.
        """
        if self.vigil.evicted and not self._terms.goes_on:
            return
        while any(self.roster.open.values()):
            if (came := self.receive(None)) is not None:
                self.pool.release(came[1].result.vectors)
            else:
                self.roster.losses.clear()
        waiting = self.roster.workers
        for worker in waiting:
            self.vigil.say_goodbye(worker)
        with contextlib.suppress(WorkerLost):  # all is done: who hangs now costs nothing
            for worker in waiting:
                self._hear_last_word(worker)
        self.vigil.see_off()

    def _hear_last_word(self, worker: int) -> None:
        """A worker's last spans; none of one that ends otherwise."""
        nap = Nap()
        while (found := self._wire.probe(worker + 1, Tag.REPLY)) is None:
            self.vigil.rest(nap)
            if worker not in self.roster.open:
                return
        with contextlib.suppress(Damaged):  # a few spans are lost
            self._record(worker, self._wire.header(found[0], Tag.REPLY, found[1])[0])
        self.roster.watches.forget(worker)

    def _take_in(self, source: int, size: int, places: Mapping[int, Vectors]) -> tuple[int, Reply]:
        """A reply whose header has come."""
        worker = source - 1
        start = self.now()
        try:
            (serial, result, spans), specs = self._wire.header(source, Tag.REPLY, size)
        except Damaged:
            serial = NO_SERIAL
        if serial == NO_SERIAL:
            self.vigil.evict(worker, DAMAGED)
            raise _Evicted
        expected, task = self.roster.open[worker][0]
        if serial != expected:
            raise RuntimeError(f"worker {worker} answered task {serial}, not task {expected}")
        place = self._place(serial, places) or (self.pool.take() if specs else ())
        vectors, coming = self._wire.start_vectors(source, Tag.REPLY_VECTOR, specs, place)
        nap = Nap()
        while not coming.done():
            self.vigil.rest(nap)
            if worker not in self.roster.open:
                self.vigil.void.append(coming)
                raise _Evicted
        if source in self._wire.gone:
            raise RankGone(source)
        if result.version == DAMAGED_TASK or not self._wire.intact(specs, vectors):
            self.vigil.evict(worker, DAMAGED)
            raise _Evicted
        self.roster.answered(worker, self.vigil.now)
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
            self.vigil.rest(nap)
            if self.roster.losses:
                return None
        self._observe(0, ("wait", start, self.now()))
        return found

    def _record(self, worker: int, spans: Sequence[Span]) -> None:
        """Pass a worker's spans on, on the coordinator's clock."""
        shift = self._offsets[worker] - self._origin
        for kind, start, end in spans:
            self._observe(worker + 1, (kind, start + shift, end + shift))
