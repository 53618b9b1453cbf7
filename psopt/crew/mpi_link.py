"""A worker's half of the crew on real ranks; ``mpi_crew.py`` is the coordinator's half."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from psopt.crew.base import DAMAGED_TASK, Peers, Result, Task, Vectors
from psopt.crew.faults import Fate, damaged
from psopt.crew.mpi_peers import MpiPeers, answer_ping
from psopt.crew.nap import Nap
from psopt.crew.wire import NO_SERIAL, Damaged, RankGone, Tag, Wire
from psopt.replica.spans import SpanLog


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
        fate: what is to become of the next reply, for a trial.
    """

    def __init__(
        self,
        wire: Wire,
        rank: int,
        size: int,
        clock: SpanLog,
        fate: Callable[[], Fate] = Fate,
    ) -> None:
        self._wire, self._clock, self._fate = wire, clock, fate
        self.peers: Peers = MpiPeers(wire, rank - 1, size - 1, clock)

    def introduce(self, introduction: dict[str, Any]) -> None:
        """Tell the coordinator who this is; its pings follow."""
        self._wire.send(0, (Tag.HELLO, Tag.HELLO), introduction, ()).wait()

    def receive(self, places: Vectors) -> Order | None:
        """The next task, its vectors received into ``places``; None when the job is over."""
        while True:
            with self._clock.span("wait"):
                size = self._await_task()
            with self._clock.span("receive"):
                try:
                    order, specs = self._wire.header(0, Tag.TASK, size)
                except Damaged:
                    self.reply(NO_SERIAL, Result(version=DAMAGED_TASK))
                    self._wait_to_be_sent_away()
                    return None
                if order is None:
                    return None
                serial, task, structure = order
                vectors = self._wire.vectors(0, Tag.TASK_VECTOR, specs, places)
            if self._wire.intact(specs, vectors):
                return Order(serial, task, vectors, structure)
            self.reply(serial, Result(version=DAMAGED_TASK))

    def reply(self, serial: int, result: Result) -> None:
        """Answer task ``serial``; returns when the result's vectors have left."""
        with self._clock.span("send"):
            header = (serial, replace(result, vectors=()), self._clock.take())
            tags, fate = (Tag.REPLY, Tag.REPLY_VECTOR), self._fate()
            arriving = damaged(result.vectors) if fate.damaged and result.vectors else None
            torn = fate.damaged and not result.vectors
            message = self._wire.send(0, tags, header, result.vectors, arriving, torn=torn)
            if fate.deadly:
                message.done()  # lets MPI go on: some of it is under way
                os.kill(os.getpid(), signal.SIGKILL)
            message.wait()

    def leave(self) -> None:
        """The last message: spans that no reply has carried."""
        self._wire.send(0, (Tag.REPLY, Tag.REPLY_VECTOR), self._clock.take(), ()).wait()

    def _wait_to_be_sent_away(self) -> None:
        """What belonged to a header that was damaged is not known: throw all away until the last word."""
        nap = Nap()
        while True:
            if (found := self._wire.probe(0, Tag.TASK_VECTOR)) is not None:
                self._wire.discard(0, Tag.TASK_VECTOR, found[1])
            elif (found := self._wire.probe(0, Tag.TASK)) is not None:
                with contextlib.suppress(Damaged):
                    if self._wire.header(0, Tag.TASK, found[1])[0] is None:
                        return
            elif 0 in self._wire.gone:
                raise RankGone(0)
            else:
                nap()

    def _await_task(self) -> int:
        """Sleep until a task has come, answering pings; the size of its header.

        Raises:
            RankGone: the coordinator has died.
        """
        nap = Nap()
        while (found := self._wire.probe(0, Tag.TASK)) is None:
            if answer_ping(self._wire):
                nap.reset()
            if 0 in self._wire.gone:
                raise RankGone(0)
            nap()
        return found[1]
