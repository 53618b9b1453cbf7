"""Loss and gradient of a batch from its slices: how the slices are dealt out, and how they add up.

Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, section 4.2 (Sandblaster): a batch is
cut into slices much smaller than a worker's share; whoever is free gets the next ones, workers add up
by themselves and send a sum only when asked, and at the tail slices are given out again, the first
copy to come back counts.

What a slice adds to the mean is rounded to whole quanta and added up as integers
(``psopt.schemes.quanta``), losses are added exactly (``math.fsum``), and the slices' boundaries
depend on (seed, epoch, batch) only. So the result has the same bits for any number of workers, any
timing and either way of dealing.

A worker's accrual cannot be taken apart again. So a slice whose copies may compete travels *alone*:
its reply carries its own sum, and nothing is accrued. Slices travel alone to a worker that would not
finish one before all others are done, or whose pace is not known yet; before that its accrual is
asked for, so that nobody waits for a slow worker's earlier slices at the end.

A slice whose gradient is not finite is done again, alone, by a second worker if there is one
(``psopt.crew.doubt``); what that one says counts.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from psopt.crew.base import ALL_GONE, HandOver, Lost, Reply, Slices, Tally, Ticket, WorkerLost, deal
from psopt.schemes.base import Context
from psopt.schemes.pace import Pace
from psopt.schemes.quanta import Scale

_OVERHEAD = 0.05  # of a task's time that messages may take


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A batch's mean loss and gradient (n,), without a penalty.

    Attributes:
        loss: NaN where the loss or the gradient of a slice is not finite.
        gradient: of the parameters' dtype; zero where the loss is NaN.
        tally: over all slices.
        largest: entry that a slice adds to the mean, 0 where the loss is NaN; beyond the scale's limit
            the gradient lacks slices.
    """

    loss: float
    gradient: Tensor
    tally: Tally
    largest: float


class Batch:
    """One evaluation: which slices are still to be given out, on their way, accrued, counted.

    Args:
        context: crew and server; the server's version is the point. No task for slices may have named
            it before.
        tickets: the slices.
        scale: how entries become whole numbers.
        pace: of the workers; kept from evaluation to evaluation.
        most: slices a task; None: by the workers' pace.
    """

    def __init__(
        self,
        context: Context,
        tickets: Sequence[Ticket],
        scale: Scale,
        pace: Pace,
        most: int | None = None,
    ) -> None:
        self._context, self._crew, self._tickets = context, context.crew, tuple(tickets)
        self._samples = sum(context.tickets.count(ticket) for ticket in tickets)
        self._like, self._version = context.server.vectors[0], context.server.version
        self._scale, self._pace, self._most = scale, pace, most
        self._number = {ticket: k for k, ticket in enumerate(self._tickets)}
        self._todo = deque(range(len(self._tickets)))
        self._tallies: dict[int, Tally] = {}
        self._accrued: dict[int, list[int]] = {}  # given to a worker, and not handed over
        self._lonely: dict[int, set[int]] = {}  # on their way alone, and who has copies
        self._given: dict[int, float] = {}  # when a worker got its last task
        self._open: dict[int, int] = {}  # slices that a worker is at
        self._doubts: dict[int, int] = {}  # slices that were not finite, and at whom
        self._again: list[int] = []  # those of them that nobody does again yet
        self._resting: set[int] = set()  # there was nothing for them
        self._sum = torch.zeros(len(scale.quanta) * self._like.numel(), dtype=torch.int64)
        self._largest = 0.0
        self._finite = True

    def static(self) -> Evaluation:
        """Each worker gets its share of the slices at once, and everybody waits for the slowest."""
        while not self._ended():
            for worker in self._crew.idle():
                self._second(worker)
            if len(self._crew.idle()) == len(self._crew.workers):
                self._share()  # again, where a worker was lost
            self._take()
        return self._result()

    def dynamic(self) -> Evaluation:
        """Slices go to whoever is free, and copies of the last ones too."""
        while not self._ended():
            for worker in self._crew.idle():
                if worker not in self._resting and not self._employ(worker):
                    self._resting.add(worker)
            self._take()
        return self._result()

    def _ended(self) -> bool:
        """Whether all is in, or it is known that it will not do; replies that are owed are passed over."""
        if not self._finite or self._largest > self._scale.limit:
            return True
        return len(self._tallies) == len(self._tickets) and not self._accrued

    def _share(self) -> None:
        workers = self._crew.workers
        todo = [self._todo.popleft() for _ in range(len(self._todo))]
        for worker, block in zip(workers, deal(len(todo), len(workers)), strict=True):
            if block:
                self._give(worker, todo[block.start : block.stop])
                self._ask(worker)

    def _employ(self, worker: int) -> bool:
        """Give a free worker what helps most: slices to accrue, slices alone, copies, or nothing."""
        pace, todo = self._pace, self._todo
        if self._second(worker):
            return True
        seconds = pace.of(worker)
        left = pace.together(len(todo), len(self._crew.workers))
        if todo and worker in pace.seconds and seconds <= left:
            count = self._count(seconds, left)
            self._give(worker, [todo.popleft() for _ in range(count)])
            if left <= pace.message:
                self._ask(worker)  # at once: it would not be long until then
            return True
        asked = worker in self._accrued
        if asked:
            self._ask(worker)
        alone = todo.popleft() if todo else self._late(worker)
        if alone is not None:
            self._give(worker, [alone], alone=True)
        return asked or alone is not None

    def _second(self, worker: int) -> bool:
        """Have a free worker do a slice again that was not finite at another one; whether there is any."""
        for slice_ in self._again:
            if worker != self._doubts[slice_] or len(self._crew.workers) == 1:
                self._again.remove(slice_)
                self._give(worker, [slice_], alone=True)
                return True
        return False

    def _count(self, seconds: float, left: float) -> int:
        """Slices for one task: enough that messages cost little, not so many that others wait.

        Where a message takes longer than all that is left, the worker gets its share of that.
        """
        if self._most is not None:
            return min(self._most, len(self._todo))
        pace = self._pace
        enough = math.ceil(pace.message / _OVERHEAD / seconds)
        under_way = sum(self._open.values())
        whole = pace.together(len(self._todo) + under_way, len(self._crew.workers))
        share = max(left / 2, min(whole, pace.message)) / seconds
        return max(1, min(enough, math.ceil(share - 0.5), len(self._todo)))

    def _late(self, worker: int) -> int | None:
        """A slice on its way, of which ``worker`` would be sooner done with a copy: the latest one."""
        if worker not in self._pace.seconds:
            return None
        best, latest = None, self._crew.now() + self._pace.of(worker) + self._pace.message
        for slice_, owners in self._lonely.items():
            doubted = self._doubts.get(slice_) == worker
            if (
                not doubted
                and worker not in owners
                and (due := min(map(self._due, owners))) > latest
            ):
                best, latest = slice_, due
        return best

    def _due(self, owner: int) -> float:
        """When a lonely slice of ``owner`` is expected. One that is overdue will take as long again."""
        if owner not in self._pace.seconds:
            return math.inf
        pace, now = self._pace, self._crew.now()
        due = self._given[owner] + pace.of(owner) + pace.message
        return max(due, now + (now - due))

    def _give(self, worker: int, slices: list[int], *, alone: bool = False) -> None:
        tickets = tuple(self._tickets[k] for k in slices)
        scale = self._scale
        if alone:
            self._lonely.setdefault(slices[0], set()).add(worker)
        else:
            self._accrued.setdefault(worker, []).extend(slices)
        self._given[worker], self._open[worker] = self._crew.now(), len(slices)
        self._crew.submit(
            worker,
            Slices(self._version, tickets, self._samples, scale.quanta, scale.limit, alone=alone),
        )

    def _ask(self, worker: int) -> None:
        self._crew.submit(worker, HandOver(self._version))

    def _take(self) -> None:
        """Take in one event; what belongs to an earlier batch is passed over."""
        event = self._crew.collect()
        if isinstance(event, Lost):
            self._lose(event.worker)
        elif event.task.version != self._version:
            if isinstance(event.task, Slices):
                self._pace.learn(event)
        elif isinstance(event.task, Slices):
            self._pace.learn(event, self._crew.now() - self._given[event.worker])
            self._count_in(event, event.task)
        else:
            del self._accrued[event.worker]
            self._sum += event.result.vectors[0]

    def _count_in(self, reply: Reply, task: Slices) -> None:
        self._open.pop(reply.worker, None)
        self._largest = max(self._largest, reply.result.largest)
        for ticket, tally in zip(task.tickets, reply.result.tallies, strict=True):
            number = self._number[ticket]
            if number in self._tallies:
                continue
            if not tally.finite and number not in self._doubts:
                self._doubt(number, reply.worker, alone=task.alone)
                continue
            if tally.finite and number in self._doubts:
                self._context.disprove([self._doubts.pop(number)])
            self._finite = self._finite and tally.finite
            self._tallies[number] = tally
            if task.alone:
                del self._lonely[number]
                self._sum += reply.result.vectors[0]

    def _doubt(self, slice_: int, worker: int, *, alone: bool) -> None:
        """A slice was not finite at ``worker``; if a copy is on its way, that is the second opinion."""
        self._doubts[slice_] = worker
        if not alone:
            self._accrued[worker].remove(slice_)
        elif others := self._lonely.pop(slice_) - {worker}:
            self._lonely[slice_] = others
            return
        self._again.append(slice_)
        self._resting.clear()

    def _lose(self, worker: int) -> None:
        """A worker is gone, with all that it has accrued: others do it again.

        Raises:
            WorkerLost: no worker is left.
        """
        if not self._crew.workers:
            raise WorkerLost(ALL_GONE)
        self._pace.forget(worker)
        self._resting.clear()
        self._open.pop(worker, None)
        again = self._accrued.pop(worker, [])
        for slice_ in again:
            self._tallies.pop(slice_, None)
        for slice_, owners in list(self._lonely.items()):
            owners.discard(worker)
            if not owners:
                del self._lonely[slice_]
                again.append(slice_)
        self._again += [slice_ for slice_ in again if slice_ in self._doubts]
        self._todo.extendleft(sorted(set(again) - set(self._doubts), reverse=True))

    def _result(self) -> Evaluation:
        like, count = self._like, len(self._tickets)
        if not self._finite or len(self._tallies) < count:
            tally = Tally(math.nan, None, self._samples, finite=self._finite)
            largest = self._largest if self._finite else 0.0
            return Evaluation(math.nan, torch.zeros_like(like), tally, largest)
        tallies = [self._tallies[k] for k in range(count)]
        correct = [tally.correct for tally in tallies if tally.correct is not None]
        loss = math.fsum(tally.loss for tally in tallies)
        tally = Tally(loss, sum(correct) if len(correct) == count else None, self._samples)
        gradient = torch.zeros(like.numel(), dtype=torch.float64)
        for whole, quantum in zip(
            self._sum.view(-1, like.numel()), self._scale.quanta, strict=True
        ):
            gradient.add_(whole.double().mul_(quantum))
        return Evaluation(loss / self._samples, gradient.to(like.dtype), tally, self._largest)
