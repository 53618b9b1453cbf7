"""How workers exchange among themselves.

``MpiPeers`` sums rows in slot order with the traffic of a ring allreduce. Each worker adds up one
segment of the vector for everybody, then all hand their segments round; two workers, or short
vectors, save the second half by sending whole rows. Either way an element is the very sum that the
coordinator would form, so both exchanges of BSP give the same bits.

Where a member dies, nobody waits for it: everyone looks for the dead while waiting, and breaks off; so
do all when the coordinator says that a member does not answer any more. The coordinator calls another
meeting of those that are left, whose messages have tags of their own, so that nothing that was under
way can be taken for theirs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from psopt.crew.base import PeerGone, sum_in_order
from psopt.crew.nap import Nap
from psopt.crew.wire import Bytes, Damaged, Outgoing, RankGone, Request, Tag, Wire, raw_bytes
from psopt.replica.spans import SpanLog

_SHORT = 1 << 18  # bytes that a worker sends; below it a second exchange costs more than the bytes
_TAGS = 32  # between the tags of one meeting and the next
_MEETINGS = 1000  # MPI promises tags up to 32767
_LOOK = 0.01  # seconds between looks round


class MpiPeers:
    """The other workers, for rounds without the coordinator.

    Args:
        wire: the ranks.
        worker: this one.
        workers: how many there are at first.
        clock: where the time goes.
    """

    def __init__(self, wire: Wire, worker: int, workers: int, clock: SpanLog) -> None:
        self._wire, self._clock, self._worker = wire, clock, worker
        self._ranks = [other + 1 for other in range(workers)]
        self.index, self._meeting, self._shift = worker, 0, 0
        self._leaving = Outgoing([], [])
        self._coming: list[Request] = []
        self._abandoned: list[Outgoing] = []  # MPI may still read their memory
        self._scratch: dict[tuple[int, int, int, torch.dtype], tuple[Tensor, Bytes]] = {}
        self._pieces: dict[tuple[int, int, int], tuple[Tensor, slice, Bytes]] = {}
        self._sums = 0  # since `finish`: a round forms the same ones in the same order

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self._ranks)

    def convene(self, members: Sequence[int], meeting: int) -> None:
        """Meet ``members``, this worker among them; what an earlier meeting has left is void."""
        if meeting == self._meeting:
            return
        self._meeting, self._shift = meeting, meeting % _MEETINGS * _TAGS
        self._ranks = [member + 1 for member in members]
        self.index = members.index(self._worker)
        pending = [request for request in self._coming if not request.Test()]
        for request in pending:
            request.Cancel()
        Outgoing(pending, []).wait()  # one that had been matched brings in what nobody reads
        self._abandoned.append(self._leaving)
        self._leaving, self._coming, self._sums = Outgoing([], []), [], 0
        self._scratch.clear()
        self._pieces.clear()

    def finish(self) -> None:
        """Returns when the rows of earlier sums may change."""
        self._wait(self._leaving)
        self._leaving.memory.clear()
        self._coming.clear()
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
            rank = self._ranks[peer]
            if peer == self.index:
                arrived += [row[segment] for row in rows]
                continue
            for slot in range(counts[peer]):
                place, memory = self._place((peer, slot), mine)
                arrived.append(place)
                requests += self._receive(rank, Tag.PIECE, memory)
            leaving.memory += rows
            for slot, row in enumerate(rows):
                piece = self._piece((self._sums, peer, slot), row, segment)
                leaving.requests += self._send(rank, Tag.PIECE, piece)
        self._sums += 1
        self._wait(Outgoing(requests, arrived))
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
            requests += self._receive(self._ranks[peer], Tag.SUM, theirs)
            requests += self._send(self._ranks[peer], Tag.SUM, raw_bytes(mine))
        self._wait(Outgoing(requests, [out]))

    def _send(self, rank: int, tag: Tag, piece: Bytes) -> list[Request]:
        return self._wire.start_send(rank, tag + self._shift, piece)

    def _receive(self, rank: int, tag: Tag, piece: Bytes) -> list[Request]:
        requests = self._wire.start_receive(rank, tag + self._shift, piece)
        self._coming += requests
        return requests

    def _wait(self, messages: Outgoing) -> None:
        """Sleep until all is done.

        Raises:
            PeerGone: a member has died.
            RankGone: the coordinator has.
        """
        nap, look = Nap(), time.perf_counter() + _LOOK
        while not messages.done():
            if time.perf_counter() > look:
                self._look_round()
                look = time.perf_counter() + _LOOK
            nap()
        self._see_who_is_gone()  # their requests end, too

    def _look_round(self) -> None:
        """Who has died, and what the coordinator wants meanwhile."""
        self._wire.look()
        self._see_who_is_gone()
        answer_ping(self._wire)
        while (found := self._wire.probe(0, Tag.BREAK)) is not None:
            try:
                meeting, _ = self._wire.header(0, Tag.BREAK, found[1])
            except Damaged:  # to break off once too often does no harm
                meeting = self._meeting
            if meeting == self._meeting:
                raise PeerGone

    def _see_who_is_gone(self) -> None:
        if gone := self._wire.gone:
            if 0 in gone:
                raise RankGone(0)
            if not gone.isdisjoint(self._ranks):
                raise PeerGone


def answer_ping(wire: Wire) -> bool:
    """Answer the coordinator's ping with this rank's clock; whether there was one."""
    if (ping := wire.probe(0, Tag.PING)) is None:
        return False
    wire.discard(0, Tag.PING, ping[1])
    wire.send(0, (Tag.PONG, Tag.PONG), time.perf_counter(), ()).wait()
    return True
