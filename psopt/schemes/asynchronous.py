"""The asynchronous course: each gradient is applied as it comes, its worker goes on from the newest version.

Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012 (Downpour SGD with n_fetch = n_push
= 1).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from psopt.crew.base import ALL_GONE, Gradient, Lost, Reply, WorkerLost
from psopt.schemes.base import Context, Limit, Scheme, Update

StateT = TypeVar("StateT")


class Asynchronous(Scheme, Generic[StateT]):
    """Applies each reply at once; subclasses weigh updates and decide which version a worker gets."""

    @abstractmethod
    def init(self, context: Context) -> StateT:
        """Fresh state."""

    def factors(self, staleness: int) -> tuple[float, float]:
        """(weight of the gradient, factor on the learning rate) for an update of this staleness."""
        return 1.0, 1.0

    def version_for(self, context: Context, state: StateT, worker: int) -> int | None:
        """Version that ``worker`` is to start from; None: not now."""
        return context.server.version

    def updated(self, context: Context, state: StateT) -> None:
        """Called after each update of the server."""

    def step(self, context: Context, state: Any, limit: Limit) -> Sequence[Update]:
        """Give every free worker a ticket, then take in one reply."""
        self._issue(context, state)
        while len(context.crew.idle()) < len(context.crew.workers):
            event = context.crew.collect()
            if isinstance(event, Lost):
                context.give_back(event)
                self._issue(context, state)
                continue
            return [self._take(context, state, event)]
        if not context.crew.workers:
            raise WorkerLost(ALL_GONE)
        return []

    def _issue(self, context: Context, state: StateT) -> None:
        for worker in context.crew.idle():
            version = self.version_for(context, state, worker)
            if version is None:
                continue
            ticket = context.tickets.issue()
            if ticket is None:
                return
            measured = context.explosion is not None
            context.crew.submit(worker, Gradient(version, ticket, measured=measured))

    def _take(self, context: Context, state: StateT, reply: Reply) -> Update:
        task, server = reply.task, context.server
        assert isinstance(task, Gradient)
        (tally,) = reply.result.tallies
        staleness = server.version - task.version
        gradient, rate = self.factors(staleness)
        if all(context.offences.good([tally], context.explosion)):
            epoch = int(context.tickets.epoch)
            context.apply(reply.result.vectors, epoch=epoch, weight=gradient, rate=rate)
            context.tickets.applied(task.ticket)
            self.updated(context, state)
        else:
            context.refuse([task.ticket], [reply.worker])
            tally = replace(tally, refused=True)
        now = context.crew.now()
        return Update(server.version, tally, now, staleness, gradient * rate, reply.worker)
