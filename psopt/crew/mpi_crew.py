"""The coordinator's half of the crew on real ranks; ``mpi_link.py`` is the workers' half.

Worker w is rank w + 1. Every task gets a serial number; a worker answers its tasks in order, and sends
no reply before the one before it has been received. So memory for what the coordinator has not taken
in yet is bounded: one reply for each worker, and that stays with the worker until it is wanted, but
for short ones. Vectors go out from the memory that was published and come in to buffers that are used
again, so a step copies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    Tally,
    Task,
    Vectors,
    sum_in_order,
)
from psopt.crew.meeting import by_round
from psopt.crew.patience import Terms
from psopt.crew.post import Post
from psopt.crew.posted import Posted
from psopt.crew.wire import Wire

_SPARE_BYTES = 256 << 20


class MpiCrew(Posted):
    """Workers on the other ranks; it goes on without those that die where the wire survives that.

    Args:
        wire: connects this rank with the workers' ranks.
        workers: how many there are.
        observer: is told where each rank's time goes.
        terms: how the loss of a worker is taken.
    """

    def __init__(
        self, wire: Wire, workers: int, observer: Observer, terms: Terms | None = None
    ) -> None:
        self._goes_on = terms is not None and terms.goes_on
        self._post = Post(wire, workers, observer, terms or Terms())
        super().__init__(self._post, self._post.vigil)
        self._pool = self._post.pool
        self._meeting = 0

    def open(self) -> list[dict[str, Any]]:
        """Wait for every worker's introduction and set the clocks by it.

        Returns:
            What each worker says of itself, in worker order.
        """
        return self._post.open()

    @property
    def deserters(self) -> tuple[int, ...]:
        """Evicted workers that have not left: MPI cannot end in order."""
        return tuple(sorted(self._post.vigil.evicted))

    def now(self) -> float:
        """Seconds since the crew opened."""
        return self._post.now()

    def retire(self, version: int) -> None:
        """Take ``version`` back once nothing of it is on its way."""
        self._post.retire(version)

    def collect(self) -> Reply | Lost:
        """The next reply to arrive, or the next loss."""
        self._pool.take_back()
        while not self._roster.kept:
            if self._roster.all_idle and not self._roster.losses:
                raise RuntimeError("collect: no task is open, so no reply can come")
            if (came := self._post.receive(None)) is not None:
                self._roster.kept.append(came[1])
            else:
                self._roster.deal_again({}, self._post.send)
        found = self._roster.collect()
        if isinstance(found, Reply):
            self._pool.lend(found.result.vectors)
        return found

    def each(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Reply]]:
        """Position of a task and its reply, as they arrive."""
        self._pool.take_back()
        wanted = self._roster.deal_out(list(enumerate(tasks)), self._post.send)
        while wanted:
            if (came := self._post.receive(None)) is None:
                self._roster.deal_again(wanted, self._post.send)
                continue
            serial = came[0]
            if (reply := self._doubts.heard(*came)) is None:
                self._pool.release(came[1].result.vectors)
            elif serial in wanted:
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
        wanted = self._roster.deal_out(list(enumerate(tasks)), self._post.send)
        serials = {position: serial for serial, position in wanted.items()}
        budget = max(2, _SPARE_BYTES // max(1, sum(v.nbytes for v in out)))
        arrived: dict[int, Reply] = {}
        replies: list[Reply] = []
        for position in range(len(tasks)):
            while position not in arrived:
                serial = serials[position]
                full = len(arrived) >= budget and not self._roster.losses  # who has it may be gone
                source = self._roster.doing(serial) if full else None
                came = self._post.receive(source, {serial: out} if position == 0 else {})
                if came is None:
                    self._roster.deal_again(wanted, self._post.send)
                    serials |= {p: s for s, p in wanted.items()}
                elif (stands := self._doubts.heard(*came)) is None:
                    self._give_back(came[1].result.vectors, out)
                elif came[0] in wanted:
                    arrived[wanted.pop(came[0])] = stands
                else:
                    self._roster.kept.append(stands)
            reply = arrived.pop(position)
            for total, vector in zip(out, reply.result.vectors, strict=True):
                sum_in_order([vector] if position == 0 else [total, vector], total)
            self._give_back(reply.result.vectors, out)
            replies.append(reply.bare())
        return replies

    def _give_back(self, vectors: Vectors, out: Vectors) -> None:
        """Memory of a reply that has been read, unless it came to its place."""
        if not out or vectors[0] is not out[0]:
            self._pool.release(vectors)

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
        task = replace(task, members=members, meeting=self._meeting, keep=self._goes_on)
        wanted, replies = self._roster.deal_out([(w, task) for w in members], self._post.send), {}
        while wanted:
            if (came := self._post.receive(None)) is None:
                for _, lost in self._roster.losses:
                    whole &= not [wanted.pop(serial) for serial, _ in lost]
                self._roster.losses.clear()
                self._post.vigil.break_off(members, self._meeting)
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
        self._post.close()
