"""The parameter server and the account of batches, as schemes see them."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from psopt.crew.base import BatchPlan, Result, Ticket, Vectors


class Server(Protocol):
    """The parameter server, as schemes see it."""

    @property
    def version(self) -> int:
        """Number of updates made."""

    @property
    def vectors(self) -> Vectors:
        """Parameters and buffers (live)."""

    @property
    def inbox(self) -> Vectors:
        """Vectors of the same sizes, to receive a sum of updates into."""

    def apply(
        self, vectors: Vectors, *, epoch: int, weight: float = 1.0, rate: float = 1.0
    ) -> None:
        """One optimizer step along ``vectors[0]`` times ``weight``; buffers follow."""

    def place(self, parameters: Tensor) -> None:
        """Put ``parameters`` (n,) in the place of the server's; the version advances."""

    def settle(self, buffers: Vectors) -> None:
        """Replace the buffers; the version advances."""

    def portable(self) -> tuple[Vectors, Any]:
        """Parameters, buffers and optimizer tensors, and the structure of the latter."""

    def follow(self, version: int) -> None:
        """The workers are at ``version`` now; parameters come with ``adopt``."""

    def adopt(self, result: Result) -> None:
        """Take over the state that a worker sent home."""


class Tickets(Protocol):
    """The account of batches, as schemes see it."""

    @property
    def epoch(self) -> float:
        """Epochs done."""

    @property
    def position(self) -> int:
        """Samples done with, over all epochs."""

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""

    @property
    def rows(self) -> int:
        """Samples of an epoch."""

    def plan(self, epoch: int) -> BatchPlan:
        """The batches of an epoch."""

    def spend(self, samples: int) -> None:
        """Count work that is by no ticket."""

    def issue(self) -> Ticket | None:
        """Give out the next ticket; None: there is none now."""

    def issue_round(self, slots: int) -> tuple[Ticket, ...]:
        """Give out those of a round; none: there are none left."""

    def applied(self, ticket: Ticket) -> None:
        """Its update is made."""

    def refused(self, ticket: Ticket) -> None:
        """Its update is left out."""

    def give_back(self, ticket: Ticket) -> None:
        """It is to be issued again."""

    def count(self, ticket: Ticket) -> int:
        """Samples of it."""
