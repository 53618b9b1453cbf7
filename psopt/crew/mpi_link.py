"""A worker's half of the crew on real ranks; ``mpi_crew.py`` is the coordinator's half.

Also how workers exchange among themselves: ``MpiPeers`` sums rows in slot order with the traffic of
a ring allreduce. Each worker adds up one segment of the vector for everybody, then all hand their
segments round; two workers, or short vectors, save the second half by sending whole rows. Either
way an element is the very sum that the coordinator would form, so both exchanges of BSP give the
same bits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from psopt.crew.base import Peers, Result, Task, Vectors, sum_in_order
from psopt.crew.nap import Nap
from psopt.crew.wire import Bytes, Outgoing, Request, Tag, Wire, raw_bytes
from psopt.replica.spans import SpanLog

_SHORT = 1 << 18  # bytes that a worker sends; below it a second exchange costs more than the bytes


@dataclass(frozen=True, slots=True)
class Order:
    """A task as it arrived: with the vectors of its version, unless the replica holds them."""

    serial: int
    task: Task
    vectors: Vectors
    structure: Any


class MpiLink:
    """Connects a worker with the coordinator (rank 0).

    Args:
        wire: the ranks.
        rank: this worker's rank, from 1.
        size: number of ranks.
        clock: where this worker's time goes.
    """

    def __init__(self, wire: Wire, rank: int, size: int, clock: SpanLog) -> None:
        self._wire, self._clock = wire, clock
        self.peers: Peers = MpiPeers(wire, rank - 1, size - 1, clock)

    def introduce(self, introduction: dict[str, Any]) -> None:
        """Tell the coordinator who this is; its pings follow."""
        self._wire.send(0, (Tag.HELLO, Tag.HELLO), introduction, ()).wait()

    def receive(self, places: Vectors) -> Order | None:
        """The next task, its vectors received into ``places``; None when the job is over."""
        with self._clock.span("wait"):
            size = self._await_task()
        with self._clock.span("receive"):
            order, specs = self._wire.header(0, Tag.TASK, size)
            if order is None:
                return None
            serial, task, structure = order
            vectors = self._wire.vectors(0, Tag.TASK_VECTOR, specs, places)
        return Order(serial, task, vectors, structure)

    def reply(self, serial: int, result: Result) -> None:
        """Answer task ``serial``; returns when the result's vectors have left."""
        with self._clock.span("send"):
            header = (serial, replace(result, vectors=()), self._clock.take())
            self._wire.send(0, (Tag.REPLY, Tag.REPLY_VECTOR), header, result.vectors).wait()

    def leave(self) -> None:
        """The last message: spans that no reply has carried."""
        self._wire.send(0, (Tag.REPLY, Tag.REPLY_VECTOR), self._clock.take(), ()).wait()

    def _await_task(self) -> int:
        """Sleep until a task has come, answering pings; the size of its header."""
        nap = Nap()
        while (found := self._wire.probe(0, Tag.TASK)) is None:
            if (ping := self._wire.probe(0, Tag.PING)) is not None:
                self._wire.header(0, Tag.PING, ping[1])
                self._wire.send(0, (Tag.PONG, Tag.PONG), time.perf_counter(), ()).wait()
                nap.reset()
            nap()
        return found[1]


class MpiPeers:
    """The other workers, for rounds without the coordinator."""

    def __init__(self, wire: Wire, index: int, size: int, clock: SpanLog) -> None:
        self.index, self.size = index, size
        self._wire, self._clock = wire, clock
        self._leaving = Outgoing([], [])
        self._scratch: dict[tuple[int, int, int, torch.dtype], tuple[Tensor, Bytes]] = {}
        self._pieces: dict[tuple[int, int, int], tuple[Tensor, slice, Bytes]] = {}
        self._sums = 0  # since `finish`: a round forms the same ones in the same order

    def finish(self) -> None:
        """Returns when the rows of earlier sums may change."""
        self._leaving.wait()
        self._leaving.memory.clear()
        self._sums = 0

    def sum_rows(self, rows: Sequence[Tensor], counts: Sequence[int], out: Tensor) -> None:
        """Sum of all rows in worker order, into ``out`` (n,) on every worker."""
        if self.size == 1:
            sum_in_order(rows, out)
            return
        n = out.numel()
        if self.size == 2 or (self.size - 1) * n * out.itemsize <= _SHORT:
            segments = [slice(0, n)] * self.size
        else:
            bounds = [n * worker // self.size for worker in range(self.size + 1)]
            segments = [slice(first, end) for first, end in pairwise(bounds)]
        mine = out[segments[self.index]]
        with self._clock.span("wait"):
            arrived = self._scatter(rows, counts, segments, mine)
        sum_in_order(arrived, mine)
        if mine.numel() < n:
            with self._clock.span("send"):
                self._spread(segments, mine, out)

    def _scatter(
        self, rows: Sequence[Tensor], counts: Sequence[int], segments: Sequence[slice], mine: Tensor
    ) -> list[Tensor]:
        """Everybody's rows of the own segment, in slot order, each as long as ``mine``."""
        requests: list[Request] = []
        arrived: list[Tensor] = []
        leaving = self._leaving
        for peer, segment in enumerate(segments):
            if peer == self.index:
                arrived += [row[segment] for row in rows]
                continue
            for slot in range(counts[peer]):
                place, memory = self._place((peer, slot), mine)
                arrived.append(place)
                requests += self._wire.start_receive(peer + 1, Tag.PIECE, memory)
            leaving.memory += rows
            for slot, row in enumerate(rows):
                piece = self._piece((self._sums, peer, slot), row, segment)
                leaving.requests += self._wire.start_send(peer + 1, Tag.PIECE, piece)
        self._sums += 1
        Outgoing(requests, arrived).wait()
        return arrived

    def _piece(self, target: tuple[int, int, int], row: Tensor, segment: slice) -> Bytes:
        """The bytes of ``row[segment]`` for (sum of the round, peer, slot); those of a gradient stay."""
        kept = self._pieces.get(target)
        if kept is None or kept[0] is not row or kept[1] != segment:
            kept = self._pieces[target] = (row, segment, raw_bytes(row[segment]))
        return kept[2]

    def _place(self, sender: tuple[int, int], like: Tensor) -> tuple[Tensor, Bytes]:
        """Where a row of (peer, slot) arrives, and its bytes: the same memory in every round."""
        key = (*sender, like.numel(), like.dtype)
        if key not in self._scratch:
            row = torch.empty_like(like)
            self._scratch[key] = (row, raw_bytes(row))
        return self._scratch[key]

    def _spread(self, segments: Sequence[slice], mine: Tensor, out: Tensor) -> None:
        """Hand the own segment of ``out`` round and receive the others' in place."""
        requests: list[Request] = []
        for peer in (p for p in range(self.size) if p != self.index):
            theirs = raw_bytes(out[segments[peer]])
            requests += self._wire.start_receive(peer + 1, Tag.SUM, theirs)
            requests += self._wire.start_send(peer + 1, Tag.SUM, raw_bytes(mine))
        Outgoing(requests, [out]).wait()
