"""The coordinator's half of the crew on real ranks; ``mpi_link.py`` is the workers' half.

Worker w is rank w + 1. Every task gets a serial number; a worker answers its tasks in order.
Vectors go out from the memory that was published and come in to buffers that are used again, so a
step copies nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from psopt.crew.base import (
    GONE_BACK,
    Fetch,
    Lost,
    Observer,
    Reply,
    Result,
    Rounds,
    Span,
    Tally,
    Task,
    Vectors,
    needs_vectors,
    sum_in_order,
)
from psopt.crew.meeting import by_round, meet
from psopt.crew.nap import Nap
from psopt.crew.pool import Pool
from psopt.crew.roster import Roster
from psopt.crew.wire import Outgoing, RankGone, Tag, Wire

_SPARE_BYTES = 256 << 20
_NOWHERE: Mapping[int, Vectors] = {}


class MpiCrew:
    """Workers on the other ranks; it goes on without those that die where the wire survives that.

    Args:
        wire: connects this rank with the workers' ranks.
        workers: how many there are.
        observer: is told where each rank's time goes.
        tolerant: workers may die, and the wire survives that.
    """

    def __init__(
        self, wire: Wire, workers: int, observer: Observer, *, tolerant: bool = False
    ) -> None:
        self._wire, self._observe, self._tolerant = wire, observer, tolerant
        self._roster = Roster(workers)
        self._origin = time.perf_counter()
        self._offsets = dict.fromkeys(range(workers), 0.0)
        self._published: dict[int, tuple[Vectors, Any]] = {}
        self._leaving: dict[int, deque[Outgoing]] = {}
        self._serial = self._meeting = 0
        self._pool = Pool()

    def open(self) -> list[dict[str, Any]]:
        """Wait for every worker's introduction and set the clocks by it.

        Returns:
            What each worker says of itself, in worker order.
        """
        introductions, self._offsets = meet(self._wire, self._roster.workers, self._await)
        self._origin = time.perf_counter()
        return introductions

    @property
    def workers(self) -> tuple[int, ...]:
        """Ids of the live workers, in order."""
        return self._roster.workers

    def idle(self) -> Sequence[int]:
        """Workers that owe no reply, longest free first."""
        return tuple(self._roster.idle)

    def now(self) -> float:
        """Seconds since the crew opened."""
        return time.perf_counter() - self._origin

    def publish(self, version: int, vectors: Vectors, structure: Any = None) -> None:
        """Lend ``vectors`` as ``version``."""
        self._published[version] = (vectors, structure)

    def retire(self, version: int) -> None:
        """Take ``version`` back once nothing of it is on its way."""
        for outgoing in self._leaving.pop(version, ()):
            outgoing.wait()
        self._published.pop(version, None)

    def submit(self, worker: int, task: Task) -> None:
        """Send ``task``; ``collect`` hands its reply over."""
        self._send(worker, task)
        self._roster.submit(worker)

    def collect(self) -> Reply | Lost:
        """The next reply to arrive, or the next loss."""
        self._pool.take_back()
        while not self._roster.kept:
            if self._roster.all_idle:
                raise RuntimeError("collect: no task is open, so no reply can come")
            if (came := self._receive(None)) is not None:
                self._roster.kept.append(came[1])
            else:
                self._roster.deal_again({}, self._send)
        found = self._roster.collect()
        if isinstance(found, Reply):
            self._pool.lend(found.result.vectors)
        return found

    def each(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Reply]]:
        """Position of a task and its reply, as they arrive."""
        self._pool.take_back()
        wanted = self._roster.deal_out(list(enumerate(tasks)), self._send)
        while wanted:
            if (came := self._receive(None)) is None:
                self._roster.deal_again(wanted, self._send)
                continue
            serial, reply = came
            if serial in wanted:
                yield wanted.pop(serial), reply
                self._pool.release(reply.result.vectors)
            else:
                self._roster.kept.append(reply)

    def gather(self, tasks: Sequence[Task]) -> list[Reply]:
        """Replies in task order, without vectors."""
        arrived = {position: reply.bare() for position, reply in self.each(tasks)}
        return [arrived[position] for position in range(len(tasks))]

    def reduce(self, tasks: Sequence[Task], out: Vectors) -> list[Reply]:
        """Sum the replies' vectors in task order into ``out``.

        A reply is added as soon as those before it are; early ones wait in memory up to a budget,
        beyond it at their workers.
        """
        self._pool.take_back()
        wanted = self._roster.deal_out(list(enumerate(tasks)), self._send)
        serials = {position: serial for serial, position in wanted.items()}
        budget = max(2, _SPARE_BYTES // max(1, sum(v.nbytes for v in out)))
        arrived: dict[int, Reply] = {}
        replies: list[Reply] = []
        for position in range(len(tasks)):
            while position not in arrived:
                serial = serials[position]
                source = None if len(arrived) < budget else self._roster.doing(serial)
                came = self._receive(source, {serial: out} if position == 0 else {})
                if came is None:
                    self._roster.deal_again(wanted, self._send)
                    serials |= {p: s for s, p in wanted.items()}
                elif came[0] in wanted:
                    arrived[wanted.pop(came[0])] = came[1]
                else:
                    self._roster.kept.append(came[1])
            reply = arrived.pop(position)
            for total, vector in zip(out, reply.result.vectors, strict=True):
                sum_in_order([vector] if position == 0 else [total, vector], total)
            if position > 0:
                self._pool.release(reply.result.vectors)
            replies.append(reply.bare())
        return replies

    def together(self, task: Rounds) -> tuple[int, list[tuple[Tally, ...]]]:
        """Rounds among the workers; every worker reports its own slots."""
        if not self._roster.all_idle:
            raise RuntimeError("together: workers have open tasks; collect their replies first")
        while (replies := self._meet(task)) is None:
            task = replace(task, install=False)  # who is left has done so
        versions = {result.version for result in replies}
        if len(versions) != 1:
            raise RuntimeError(f"workers disagree on the version after rounds: {versions}")
        version = versions.pop()
        for worker in self.workers:
            self._roster.held[worker] = version
        return version, by_round(task, [result.tallies for result in replies])

    def _meet(self, task: Rounds) -> list[Result] | None:
        """One attempt at the rounds of ``task``: what each worker did; None: a worker was lost."""
        members, whole = self.workers, True
        task = replace(task, members=members, meeting=self._meeting, keep=self._tolerant)
        wanted, replies = self._roster.deal_out([(w, task) for w in members], self._send), {}
        while wanted:
            if (came := self._receive(None)) is None:
                for _, lost in self._roster.losses:
                    whole &= not [wanted.pop(serial) for serial, _ in lost]
                self._roster.losses.clear()
            else:
                replies[wanted.pop(came[0])] = came[
                    1
                ].result  # all were idle: nothing else can come
        if whole and all(result.version != GONE_BACK for result in replies.values()):
            return [replies[worker] for worker in sorted(replies)]
        self._meeting += 1
        return None

    def fetch(self, version: int) -> Result:
        """State of the first worker."""
        ((_, reply),) = self.each([Fetch(version)])
        return reply.result

    def close(self) -> None:
        """Take in what is owed, then stop the workers and take their last spans."""
        while any(self._roster.open.values()):
            if (came := self._receive(None)) is not None:
                self._pool.release(came[1].result.vectors)
            else:
                self._roster.losses.clear()
        stops = [
            self._wire.send(worker + 1, (Tag.TASK, Tag.TASK_VECTOR), None, ())
            for worker in self.workers
        ]
        for worker, stop in zip(self.workers, stops, strict=True):
            nap, rank = Nap(), worker + 1
            while (found := self._wire.probe(rank, Tag.REPLY)) is None:
                if rank in self._wire.gone:  # it has ended, with or without a last word
                    break
                self._wire.raise_failure()
                nap()
            else:
                self._record(worker, self._wire.header(found[0], Tag.REPLY, found[1])[0])
            stop.wait()

    def _send(self, worker: int, task: Task) -> int:
        """Send ``task``, with its version's vectors when the worker does not hold them; its serial number."""
        vectors: Vectors = ()
        structure: Any = None
        if needs_vectors(task, self._roster.held.get(worker)):
            vectors, structure = self._published[task.version]
        self._serial += 1
        outgoing = self._wire.send(
            worker + 1, (Tag.TASK, Tag.TASK_VECTOR), (self._serial, task, structure), vectors
        )
        leaving = self._leaving.setdefault(task.version, deque())
        while leaving and leaving[0].done():
            leaving.popleft()
        leaving.append(outgoing)
        self._roster.held[worker] = task.version
        self._roster.open[worker].append((self._serial, task))
        return self._serial

    def _mourn(self) -> bool:
        """See whether workers have died; what they had is in the roster's ``losses`` then."""
        return bool(self._wire.gone) and self._roster.bury([rank - 1 for rank in self._wire.gone])

    def _receive(
        self, worker: int | None, places: Mapping[int, Vectors] = _NOWHERE
    ) -> tuple[int, Reply] | None:
        """The next reply (of ``worker``), vectors of a serial in ``places``; None: workers were lost instead."""
        if self._roster.losses:
            return None
        while (found := self._await(None if worker is None else worker + 1, Tag.REPLY)) is not None:
            try:
                if found[0] - 1 in self._roster.open:
                    return self._take_in(*found, places)
                self._wire.header(found[0], Tag.REPLY, found[1])  # the last word of one who is gone
            except RankGone:
                self._mourn()
                break
        return None

    def _take_in(self, source: int, size: int, places: Mapping[int, Vectors]) -> tuple[int, Reply]:
        """A reply whose header has come."""
        worker = source - 1
        start = self.now()
        (serial, result, spans), specs = self._wire.header(source, Tag.REPLY, size)
        expected, task = self._roster.open[worker][0]
        if serial != expected:
            raise RuntimeError(f"worker {worker} answered task {serial}, not task {expected}")
        place = places.get(serial) or (self._pool.take() if specs else ())
        vectors = self._wire.vectors(source, Tag.REPLY_VECTOR, specs, place)
        self._roster.open[worker].popleft()
        if specs:
            self._observe(0, ("receive", start, self.now()))
        self._record(worker, spans)
        return serial, Reply(worker, task, replace(result, vectors=vectors))

    def _await(self, source: int | None, tag: Tag) -> tuple[int, int] | None:
        """Sleep until a message has come; (source, header size). None: workers have died."""
        nap, start = Nap(), self.now()
        while (found := self._wire.probe(source, tag)) is None:
            self._wire.raise_failure()
            if self._mourn():
                return None
            nap()
        self._observe(0, ("wait", start, self.now()))
        return found

    def _record(self, worker: int, spans: Sequence[Span]) -> None:
        """Pass a worker's spans on, on the coordinator's clock."""
        shift = self._offsets[worker] - self._origin
        for kind, start, end in spans:
            self._observe(worker + 1, (kind, start + shift, end + shift))
