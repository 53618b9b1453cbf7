"""Bulk-synchronous parallel SGD: the mean gradient of all slots, one step, barrier.

Valiant, "A bridging model for parallel computation", CACM 1990. A round has a fixed number of
*slots*, one batch each, by default as many as there are workers when the run starts. Slots are
reduced in slot order, so the result depends on their number but not on who computed them, nor when:
the same run on more, fewer or virtual workers has the same bits.

``exchange: server``: the coordinator sums the gradients, steps, and sends the parameters.
``exchange: collective``: the workers sum among themselves and each takes the same step; the
coordinator only says which batches are next, and fetches the parameters when it needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass as state
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from psopt.crew.base import Gradient, Rounds, Tally, Ticket, deal
from psopt.optim.finite import all_finite
from psopt.schemes.base import SECTION, TRANSIENT, Context, Diverged, Limit, Scheme, Update

_SECONDS_A_CHUNK = 2.0


@state
class BspState:
    """How the rounds stand.

    Attributes:
        slots: batches in a round; fixed at the start of the run.
        away: the workers hold a newer version than the server (collective exchange).
        installed: the workers hold the optimizer state (collective exchange).
        pace: seconds of a round, measured (collective exchange).
    """

    slots: int
    away: bool = field(default=False, metadata=TRANSIENT)
    installed: bool = field(default=False, metadata=TRANSIENT)
    pace: float = field(default=0.0, metadata=TRANSIENT)


@dataclass(frozen=True, config=SECTION)
class Bsp(Scheme):
    """Bulk-synchronous: the mean gradient of all slots, one step, barrier."""

    free: ClassVar[frozenset[str]] = frozenset({"exchange", "slots"})

    name: Annotated[Literal["bsp"], Field(description="Chooses this scheme.")]
    exchange: Annotated[
        Literal["server", "collective"],
        Field(
            description="server: gradients to the coordinator, parameters back; collective: workers "
            "reduce among themselves"
        ),
    ] = "server"
    slots: Annotated[
        int | None,
        Field(ge=1, description="Batches in a round; null: the number of workers at the start"),
    ] = None

    @property
    def among_themselves(self) -> bool:
        """By a collective exchange."""
        return self.exchange == "collective"

    def init(self, context: Context) -> BspState:
        """Lend the workers the first version."""
        context.publish()
        return BspState(self.slots or len(context.crew.workers))

    def step(self, context: Context, state: Any, limit: Limit) -> Sequence[Update]:
        """One round through the server, or as many as ``limit`` allows among the workers."""
        if self.exchange == "collective":
            return self._rounds(context, state, limit)
        tickets = context.tickets.issue_round(state.slots)
        return [self._round(context, tickets)] if tickets else []

    def home(self, context: Context, state: Any) -> None:
        """Fetch what the workers hold."""
        if state.away:
            version = context.server.version
            context.server.adopt(context.crew.fetch(version))
            context.publish()
            state.away = False

    def _round(self, context: Context, tickets: Sequence[Ticket]) -> Update:
        server, counts = context.server, [context.tickets.count(t) for t in tickets]
        tasks = [
            Gradient(server.version, ticket, count / sum(counts), context.explosion is not None)
            for ticket, count in zip(tickets, counts, strict=True)
        ]
        replies = context.crew.reduce(tasks, server.inbox)
        tallies = [reply.result.tallies[0] for reply in replies]
        tally, good = _total(tallies), context.offences.good(tallies, context.explosion)
        if all(good) and all_finite(server.inbox):
            context.apply(server.inbox, epoch=tickets[0].epoch)
            for ticket in tickets:
                context.tickets.applied(ticket)
        else:
            tally = replace(tally, refused=True)
            pairs = zip(replies, good, strict=True)
            context.refuse(tickets, [reply.worker for reply, fine in pairs if not fine])
        return Update(server.version, tally, context.crew.now())

    def _rounds(self, context: Context, state: BspState, limit: Limit) -> list[Update]:
        crew, server, start = context.crew, context.server, context.crew.now()
        planned = self._plan(context, state, limit)
        if not planned:
            return []
        if not state.installed:
            crew.retire(server.version)
            crew.publish(server.version, *server.portable())
        before = server.version
        task = Rounds(before, tuple(planned), not state.installed, context.skip_bad)
        after, rounds = crew.together(task)
        crew.retire(before)
        state.installed, state.away = True, True
        seconds = crew.now() - start
        state.pace = seconds / len(rounds)
        server.follow(after)
        return self._account(context, planned, rounds, before, start)

    def _plan(self, context: Context, state: BspState, limit: Limit) -> list[tuple[Ticket, ...]]:
        """Tickets of the next rounds: about two seconds' worth, within ``limit`` and one epoch."""
        most = limit.steps
        if state.pace > 0:
            most = min(most, max(1, int(_SECONDS_A_CHUNK / state.pace)))
        elif not state.installed:
            most = 1
        planned: list[tuple[Ticket, ...]] = []
        samples = 0
        while len(planned) < most and samples < limit.samples:
            tickets = context.tickets.issue_round(state.slots)
            if not tickets:
                break
            planned.append(tickets)
            samples += sum(context.tickets.count(ticket) for ticket in tickets)
        return planned

    def _account(
        self,
        context: Context,
        planned: Sequence[Sequence[Ticket]],
        rounds: Sequence[Sequence[Tally]],
        before: int,
        start: float,
    ) -> list[Update]:
        """Updates of the rounds that were run; the tickets of the others go back."""
        updates: list[Update] = []
        version, workers = before, len(context.crew.workers)
        share = (context.crew.now() - start) / len(rounds)
        for tickets in planned[len(rounds) :]:
            for ticket in tickets:
                context.tickets.give_back(ticket)
        for index, (tickets, tallies) in enumerate(zip(planned, rounds, strict=False), start=1):
            tally = _total(tallies)
            if not tally.refused:
                version += 1
                context.refused_in_a_row = 0
                for ticket in tickets:
                    context.tickets.applied(ticket)
            else:
                blocks = zip(context.crew.workers, deal(len(tallies), workers), strict=True)
                bad = [w for w, block in blocks if not all(tallies[slot].finite for slot in block)]
                try:
                    context.refuse(tickets, bad)
                except Diverged as error:
                    error.updates = updates
                    raise
            updates.append(Update(version, tally, start + index * share))
        return updates


def _total(tallies: Sequence[Tally]) -> Tally:
    """Sum over the slots of a round."""
    correct = [tally.correct for tally in tallies if tally.correct is not None]
    return Tally(
        sum(tally.loss for tally in tallies),
        sum(correct) if len(correct) == len(tallies) else None,
        sum(tally.count for tally in tallies),
        all(tally.finite for tally in tallies),
        any(tally.refused for tally in tallies),
    )
