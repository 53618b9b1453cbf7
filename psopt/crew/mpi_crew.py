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
from itertools import islice
from typing import Any

from psopt.crew.base import (
    Fetch,
    Observer,
    Reply,
    Result,
    Rounds,
    Span,
    Tally,
    Task,
    Vectors,
    deal,
    needs_vectors,
    sum_in_order,
)
from psopt.crew.nap import Nap
from psopt.crew.wire import Outgoing, Tag, Wire

_SPARE_BYTES = 256 << 20
_PINGS = 5
_NOWHERE: Mapping[int, Vectors] = {}


class MpiCrew:
    """Workers on the other ranks.

    Args:
        wire: connects this rank with the workers' ranks.
        workers: how many there are.
        observer: is told where each rank's time goes.
    """

    def __init__(self, wire: Wire, workers: int, observer: Observer) -> None:
        self._wire, self._observe = wire, observer
        self._workers = tuple(range(workers))
        self._origin = time.perf_counter()
        self._offsets = dict.fromkeys(self._workers, 0.0)
        self._published: dict[int, tuple[Vectors, Any]] = {}
        self._leaving: dict[int, deque[Outgoing]] = {}
        self._held: dict[int, int] = {}
        self._serial = 0
        self._open: dict[int, deque[tuple[int, Task]]] = {w: deque() for w in self._workers}
        self._owed = dict.fromkeys(self._workers, 0)  # submitted, and not yet collected
        self._idle: dict[int, None] = dict.fromkeys(self._workers)
        self._kept: deque[Reply] = deque()
        self._lent: list[Vectors] = []
        self._free: list[Vectors] = []

    def open(self) -> list[dict[str, Any]]:
        """Wait for every worker's introduction and set the clocks by it.

        Returns:
            What each worker says of itself, in worker order.
        """
        introductions = []
        for worker in self._workers:
            source, size = self._await(worker + 1, Tag.HELLO)
            introductions.append(self._wire.header(source, Tag.HELLO, size)[0])
            self._offsets[worker] = self._measure_offset(worker)
        self._origin = time.perf_counter()
        return introductions

    @property
    def workers(self) -> tuple[int, ...]:
        """Ids of the live workers, in order."""
        return self._workers

    def idle(self) -> Sequence[int]:
        """Workers that owe no reply, longest free first."""
        return tuple(self._idle)

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
        self._owed[worker] += 1
        self._idle.pop(worker, None)

    def collect(self) -> Reply:
        """The next reply to arrive."""
        self._take_back()
        if self._kept:
            reply = self._kept.popleft()
        else:
            if len(self._idle) == len(self._workers):
                raise RuntimeError("collect: no task is open, so no reply can come")
            reply = self._receive(None)[1]
        self._lent.append(reply.result.vectors)
        self._owed[reply.worker] -= 1
        if not self._owed[reply.worker]:
            self._idle[reply.worker] = None
        return reply

    def each(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Reply]]:
        """Position of a task and its reply, as they arrive."""
        self._take_back()
        wanted = {serial: position for position, serial in enumerate(self._deal_out(tasks))}
        while wanted:
            serial, reply = self._receive(None)
            if serial in wanted:
                yield wanted.pop(serial), reply
                self._release(reply.result.vectors)
            else:
                self._kept.append(reply)

    def gather(self, tasks: Sequence[Task]) -> list[Reply]:
        """Replies in task order, without vectors."""
        arrived = {position: reply.bare() for position, reply in self.each(tasks)}
        return [arrived[position] for position in range(len(tasks))]

    def reduce(self, tasks: Sequence[Task], out: Vectors) -> list[Reply]:
        """Sum the replies' vectors in task order into ``out``.

        A reply is added as soon as those before it are; early ones wait in memory up to a budget,
        beyond it at their workers.
        """
        self._take_back()
        wanted = self._deal_out(tasks)
        budget = max(2, _SPARE_BYTES // max(1, sum(v.nbytes for v in out)))
        arrived: dict[int, Reply] = {}
        replies: list[Reply] = []
        for position, (serial, worker) in enumerate(wanted.items()):
            while serial not in arrived:
                source = None if len(arrived) < budget else worker
                came, reply = self._receive(source, {serial: out} if position == 0 else {})
                if came in wanted:
                    arrived[came] = reply
                else:
                    self._kept.append(reply)
            reply = arrived.pop(serial)
            for total, vector in zip(out, reply.result.vectors, strict=True):
                sum_in_order([vector] if position == 0 else [total, vector], total)
            if position > 0:
                self._release(reply.result.vectors)
            replies.append(reply.bare())
        return replies

    def together(self, task: Rounds) -> tuple[int, list[tuple[Tally, ...]]]:
        """Rounds among the workers; every worker reports its own slots."""
        if len(self._idle) < len(self._workers):
            raise RuntimeError("together: workers have open tasks; collect their replies first")
        replies = self.gather([task] * len(self._workers))
        versions = {reply.result.version for reply in replies}
        if len(versions) != 1:
            raise RuntimeError(
                f"the workers disagree on the version after their rounds: {versions}"
            )
        version = versions.pop()
        for worker in self._workers:
            self._held[worker] = version
        streams = [iter(reply.result.tallies) for reply in replies]
        rounds = []
        for tickets in task.rounds:
            dealt = deal(len(tickets), len(streams))
            sums = [
                tally
                for stream, block in zip(streams, dealt, strict=True)
                for tally in islice(stream, len(block))
            ]
            if sums:  # none: the rounds ended before this one
                rounds.append(tuple(sums))
        return version, rounds

    def fetch(self, version: int) -> Result:
        """State of the first worker."""
        wanted = self._send(self._workers[0], Fetch(version))
        while True:
            serial, reply = self._receive(None)
            if serial == wanted:
                return reply.result
            self._kept.append(reply)

    def close(self) -> None:
        """Take in what is owed, then stop the workers and take their last spans."""
        while any(self._open.values()):
            self._release(self._receive(None)[1].result.vectors)
        stops = [
            self._wire.send(worker + 1, (Tag.TASK, Tag.TASK_VECTOR), None, ())
            for worker in self._workers
        ]
        for worker, stop in zip(self._workers, stops, strict=True):
            source, size = self._await(worker + 1, Tag.REPLY)
            self._record(worker, self._wire.header(source, Tag.REPLY, size)[0])
            stop.wait()

    def _send(self, worker: int, task: Task) -> int:
        """Send ``task``, with its version's vectors when the worker does not hold them; its serial number."""
        vectors: Vectors = ()
        structure: Any = None
        if needs_vectors(task, self._held.get(worker)):
            vectors, structure = self._published[task.version]
        self._serial += 1
        outgoing = self._wire.send(
            worker + 1, (Tag.TASK, Tag.TASK_VECTOR), (self._serial, task, structure), vectors
        )
        leaving = self._leaving.setdefault(task.version, deque())
        while leaving and leaving[0].done():
            leaving.popleft()
        leaving.append(outgoing)
        self._held[worker] = task.version
        self._open[worker].append((self._serial, task))
        return self._serial

    def _deal_out(self, tasks: Sequence[Task]) -> dict[int, int]:
        """Send in contiguous blocks; the serial numbers in task order, with their workers."""
        wanted = {}
        for worker, block in zip(self._workers, deal(len(tasks), len(self._workers)), strict=True):
            for position in block:
                wanted[self._send(worker, tasks[position])] = worker
        return wanted

    def _receive(
        self, worker: int | None, places: Mapping[int, Vectors] = _NOWHERE
    ) -> tuple[int, Reply]:
        """The next reply (of ``worker``) with its serial number; ``places`` says where vectors of a serial go."""
        source, size = self._await(None if worker is None else worker + 1, Tag.REPLY)
        worker = source - 1
        start = self.now()
        (serial, result, spans), specs = self._wire.header(source, Tag.REPLY, size)
        expected, task = self._open[worker].popleft()
        if serial != expected:
            raise RuntimeError(f"worker {worker} answered task {serial}, not task {expected}")
        place = places.get(serial) or (self._free.pop() if specs and self._free else ())
        vectors = self._wire.vectors(source, Tag.REPLY_VECTOR, specs, place)
        if specs:
            self._observe(0, ("receive", start, self.now()))
        self._record(worker, spans)
        return serial, Reply(worker, task, replace(result, vectors=vectors))

    def _await(self, source: int | None, tag: Tag) -> tuple[int, int]:
        """Sleep until a message has come; (source, header size)."""
        nap, start = Nap(), self.now()
        while (found := self._wire.probe(source, tag)) is None:
            self._wire.raise_failure()
            nap()
        self._observe(0, ("wait", start, self.now()))
        return found

    def _record(self, worker: int, spans: Sequence[Span]) -> None:
        """Pass a worker's spans on, on the coordinator's clock."""
        shift = self._offsets[worker] - self._origin
        for kind, start, end in spans:
            self._observe(worker + 1, (kind, start + shift, end + shift))

    def _measure_offset(self, worker: int) -> float:
        """Coordinator's clock minus the worker's, from the fastest of a few exchanges (Cristian 1989)."""
        best, offset = float("inf"), 0.0
        for _ in range(_PINGS):
            sent = time.perf_counter()
            self._wire.send(worker + 1, (Tag.PING, Tag.PING), None, ()).wait()
            source, size = self._await(worker + 1, Tag.PONG)
            theirs, _ = self._wire.header(source, Tag.PONG, size)
            received = time.perf_counter()
            if received - sent < best:
                best, offset = received - sent, (sent + received) / 2 - theirs
        return offset

    def _take_back(self) -> None:
        """The vectors of the replies handed out last are free again."""
        for vectors in self._lent:
            self._release(vectors)
        self._lent.clear()

    def _release(self, vectors: Vectors) -> None:
        if vectors:
            self._free.append(vectors)
