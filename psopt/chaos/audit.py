"""What must hold however a run goes: the account of tickets, and the course of the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from psopt.data.plan import Ticket, TicketBook
from psopt.schemes.base import Update


class Broken(AssertionError):  # noqa: N818 - reads as what happened
    """An invariant does not hold."""


class AuditedBook(TicketBook):
    """A ticket book that watches what becomes of each ticket."""

    def __init__(self, seed: int, samples: int, batch_size: int, epochs: int) -> None:
        super().__init__(seed, samples, batch_size, epochs)
        self.issues = self.returns = 0
        self.uses: Counter[Ticket] = Counter()
        self.refusals: Counter[Ticket] = Counter()

    def issue(self) -> Ticket | None:
        """Count it."""
        ticket = super().issue()
        self.issues += ticket is not None
        return ticket

    def applied(self, ticket: Ticket) -> None:
        """Count it; it may be used once."""
        super().applied(ticket)
        self.uses[ticket] += 1
        self._used_once(ticket)

    def refused(self, ticket: Ticket) -> None:
        """Count it; it is done with."""
        super().refused(ticket)
        self.refusals[ticket] += 1
        self._used_once(ticket)

    def give_back(self, ticket: Ticket) -> None:
        """Count it."""
        super().give_back(ticket)
        self.returns += 1

    def check(self, *, complete: bool) -> None:
        """See whether the account is right.

        Raises:
            Broken: it is not.
        """
        done = sum(self.uses.values()) + sum(self.refusals.values())
        if self.issues != done + self.returns + len(self.open):
            raise Broken(
                f"{self.issues} tickets issued, {done} applied or refused, {self.returns} lost, "
                f"{len(self.open)} open"
            )
        by_tickets = bool(self.issues)  # methods on slices and shards spend samples by number
        if complete and by_tickets and (self.open or not self.finished):
            raise Broken(f"the run is complete, and tickets are left: {sorted(self.open)[:3]}")

    def _used_once(self, ticket: Ticket) -> None:
        if self.uses[ticket] + self.refusals[ticket] > 1:
            raise Broken(f"{ticket} was used twice")


class Course:
    """The server's versions, as updates report them.

    Args:
        bound: staleness that no update may exceed; None: there is no bound.
    """

    def __init__(self, bound: int | None) -> None:
        self._bound, self._version = bound, 0

    def see(self, updates: Sequence[Update], version: int) -> None:
        """Some updates, after which the server is at ``version``.

        Raises:
            Broken: a version went back, or an update is too stale.
        """
        for update in updates:
            if update.version < self._version:
                raise Broken(f"version {update.version} after {self._version}")
            self._version = update.version
            if self._bound is not None and update.staleness > self._bound:
                raise Broken(
                    f"an update of staleness {update.staleness}; the bound is {self._bound}"
                )
            if update.staleness < 0:
                raise Broken(f"an update of a version to come: {update.staleness}")
        if version < self._version:
            raise Broken(f"the server went back to {version} from {self._version}")
