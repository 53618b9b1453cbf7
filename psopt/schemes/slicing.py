"""Loss and gradient of a batch from its slices: how the slices are dealt out, and how they add up.

Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, section 4.2 (Sandblaster): a batch is
cut into slices much smaller than a worker's share; whoever is free gets the next ones, workers add up
by themselves and send a sum only when asked, and at the tail slices are given out again, the first
copy to come back counts.

What a slice adds to the mean is rounded to whole quanta and added up as integers
(``psopt.replica.slices``), losses are added exactly (``math.fsum``), and the slices' boundaries
depend on (seed, epoch, batch) only. So the result has the same bits for any number of workers, any
timing and either way of dealing.

A worker's accrual cannot be taken apart again. So a slice whose copies may compete travels *alone*:
its reply carries its own sum, and nothing is accrued. Slices become lonely where the worker would not
finish one before all others are done; before that its accrual is asked for, so that nobody waits for
a slow worker's earlier slices at the end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from psopt.crew.base import HandOver, Lost, Reply, Slices, Tally, Ticket, WorkerLost, deal
from psopt.schemes.base import Context

_BITS = 62  # of an int64 sum, and a sign
_ROOM = 16  # powers of two by which an entry may exceed the largest of the last evaluation
_OVERHEAD = 0.05  # of a task's time that messages may take
_SMOOTHING = 0.3  # weight of the newest measurement


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A batch's mean loss and gradient (n,), without a penalty.

    Attributes:
        loss: NaN where the loss or the gradient of a slice is not finite.
        gradient: of the parameters' dtype; zero where the loss is NaN.
        tally: over all slices.
        largest: entry that a slice adds to the mean; for the quantum of the next evaluation.
    """

    loss: float
    gradient: Tensor
    tally: Tally
    largest: float


@dataclass(slots=True)
class Pace:
    """How fast each worker is, measured.

    Attributes:
        slice: seconds a slice, by worker.
        message: seconds that a task costs beside its slices.
    """

    slice: dict[int, float] = field(default_factory=dict)
    message: float = 0.0

    def of(self, worker: int) -> float:
        """Seconds a slice of ``worker``; a guess from the others' before it is measured; 0 unknown."""
        return self.slice.get(worker) or sum(self.slice.values()) / max(1, len(self.slice))

    def learn(self, reply: Reply, took: float) -> None:
        """Take a task of some slices into account, which came back ``took`` seconds after it was given."""
        seconds = reply.result.seconds / max(1, len(reply.result.tallies))
        before = self.slice.get(reply.worker, seconds)
        self.slice[reply.worker] = before + _SMOOTHING * (seconds - before)
        self.message += _SMOOTHING * (max(0.0, took - reply.result.seconds) - self.message)


class Batch:
    """One evaluation: which slices are still to be given out, on their way, accrued, counted.

    Args:
        context: crew and server; the server's version is the point.
        tickets: the slices.
        largest: entry that a slice added to the mean at the last evaluation; 0 when there was none.
        pace: of the workers; kept from evaluation to evaluation.
        most: slices a task; None: by the workers' pace.
    """

    def __init__(
        self,
        context: Context,
        tickets: Sequence[Ticket],
        largest: float,
        pace: Pace,
        most: int | None = None,
    ) -> None:
        self._context, self._crew, self._tickets = context, context.crew, tuple(tickets)
        self._samples = sum(context.tickets.count(ticket) for ticket in tickets)
        self._pace, self._most = pace, most
        self._version = context.server.version
        self._number = {ticket: k for k, ticket in enumerate(self._tickets)}
        self._todo = deque(range(len(self._tickets)))
        self._tallies: dict[int, Tally] = {}
        self._accrued: dict[int, list[int]] = {}
        self._asked: set[int] = set()
        self._given: dict[int, float] = {}
        self._copies: dict[int, set[int]] = {}  # of slices that travel alone
        self._sum = torch.zeros(context.server.vectors[0].numel(), dtype=torch.int64)
        self._largest = 0.0
        scale = largest or self._measure()
        room = _ROOM + math.frexp(scale)[1]
        self._limit = math.ldexp(1.0, min(room, 1000))
        depth = _BITS - max(1, len(self._tickets) - 1).bit_length() - 1
        self._quantum = math.ldexp(1.0, max(room - depth, -1000))

    def static(self) -> Evaluation:
        """Each worker gets its share of the slices at once, and everybody waits for the slowest."""
        self._drain()
        workers = self._crew.workers
        for worker, block in zip(workers, deal(len(self._tickets), len(workers)), strict=True):
            if block:
                self._give(worker, list(block))
                self._ask(worker)
        self._todo.clear()
        while len(self._crew.idle()) < len(workers):
            self._take()
        return self._result()

    def dynamic(self) -> Evaluation:
        """Slices go to whoever is free, and copies of the last ones too."""
        while not self._complete():
            for worker in self._crew.idle():
                self._employ(worker)
            self._take()
            if any(not tally.finite for tally in self._tallies.values()):
                break  # what is on its way is passed over when it comes
        return self._result()

    def _complete(self) -> bool:
        return len(self._tallies) == len(self._tickets) and not self._accrued

    def _measure(self) -> float:
        """Largest entry of the first slice, where no evaluation has gone before."""
        self._drain()
        task = Slices(self._version, self._tickets[:1], self._samples, 0.0, 0.0)
        (reply,) = self._crew.gather([task])
        largest = reply.result.largest
        return largest if 0.0 < largest < math.inf else 1.0

    def _drain(self) -> None:
        """Wait until every worker is free: copies of an earlier batch may be on their way."""
        while len(self._crew.idle()) < len(self._crew.workers):
            self._crew.collect()

    def _employ(self, worker: int) -> None:
        """Give a free worker what helps most: slices to accrue, slices alone, copies, or nothing."""
        seconds, left = self._pace.of(worker), self._left()
        if self._todo and (seconds <= left or not seconds):
            count = self._count(seconds, left)
            self._give(worker, [self._todo.popleft() for _ in range(count)])
            return
        if worker in self._accrued:
            self._ask(worker)
        if self._todo:
            self._give(worker, [self._todo.popleft()], alone=True)
        elif (slice_ := self._late(worker)) is not None:
            self._give(worker, [slice_], alone=True)

    def _left(self) -> float:
        """Seconds until the slices that nobody has yet would be done, all workers at their pace."""
        paces = [self._pace.of(worker) for worker in self._crew.workers]
        if not all(paces):
            return 0.0
        return len(self._todo) / sum(1.0 / seconds for seconds in paces)

    def _count(self, seconds: float, left: float) -> int:
        """Slices for one task: enough that messages cost little, not so many that others wait."""
        if self._most is not None:
            return min(self._most, len(self._todo))
        if not seconds:
            return 1
        enough = math.ceil(self._pace.message / _OVERHEAD / seconds)
        return max(1, min(enough, int(left / 2 / seconds), len(self._todo)))

    def _late(self, worker: int) -> int | None:
        """A slice on its way, of which ``worker`` would be sooner done with a copy."""
        now, mine = self._crew.now(), self._pace.of(worker)
        best, latest = None, now + mine
        for slice_, owners in self._copies.items():
            if slice_ in self._tallies or worker in owners:
                continue
            due = min(self._given[owner] + self._pace.of(owner) for owner in owners)
            if due > latest:
                best, latest = slice_, due
        return best

    def _give(self, worker: int, slices: list[int], *, alone: bool = False) -> None:
        tickets = tuple(self._tickets[k] for k in slices)
        task = Slices(
            self._version, tickets, self._samples, self._quantum, self._limit, alone=alone
        )
        if alone:
            self._copies.setdefault(slices[0], set()).add(worker)
        else:
            self._accrued.setdefault(worker, []).extend(slices)
        self._given[worker] = self._crew.now()
        self._crew.submit(worker, task)

    def _ask(self, worker: int) -> None:
        self._asked.add(worker)
        self._crew.submit(worker, HandOver(self._version))

    def _take(self) -> None:
        """Take in one event; what belongs to an earlier batch is passed over."""
        event = self._crew.collect()
        if isinstance(event, Lost):
            self._lose(event)
            return
        task = event.task
        if task.version != self._version:
            return
        if isinstance(task, HandOver):
            self._asked.discard(event.worker)
            del self._accrued[event.worker]
            self._sum += event.result.vectors[0]
            return
        assert isinstance(task, Slices)
        self._pace.learn(event, self._crew.now() - self._given[event.worker])
        self._largest = max(self._largest, event.result.largest)
        for ticket, tally in zip(task.tickets, event.result.tallies, strict=True):
            number = self._number[ticket]
            if task.alone and number not in self._tallies and tally.finite:
                self._sum += event.result.vectors[0]
            self._tallies.setdefault(number, tally)

    def _lose(self, lost: Lost) -> None:
        """A worker is gone, with all that it has accrued: others do it again."""
        if not self._crew.workers:
            raise WorkerLost("all workers are gone; resume from the last checkpoint")
        again = self._accrued.pop(lost.worker, [])
        self._asked.discard(lost.worker)
        for slice_, owners in self._copies.items():
            owners.discard(lost.worker)
            if not owners and slice_ not in self._tallies:
                again.append(slice_)
        for slice_ in again:
            self._tallies.pop(slice_, None)
            self._copies.pop(slice_, None)
        self._todo.extendleft(sorted(again, reverse=True))

    def _result(self) -> Evaluation:
        like = self._context.server.vectors[0]
        tallies = [self._tallies[k] for k in sorted(self._tallies)]
        finite = all(tally.finite for tally in tallies)
        correct = [tally.correct for tally in tallies if tally.correct is not None]
        total = math.fsum(tally.loss for tally in tallies)
        tally = Tally(
            total if finite else math.nan,
            sum(correct) if len(correct) == len(self._tickets) else None,
            self._samples,
            finite,
        )
        if not finite:
            return Evaluation(math.nan, torch.zeros_like(like), tally, 0.0)
        gradient = self._sum.double().mul_(self._quantum).to(like.dtype)
        return Evaluation(total / self._samples, gradient, tally, self._largest)
