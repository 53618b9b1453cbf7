"""Which rows make which batch, and the account of the batches handed out.

`BatchPlan` is a pure function of (seed, epoch): every rank computes the same rows from a ticket of
two integers, so no row index ever travels. `TicketBook` is the coordinator's account of tickets: a
ticket is open from its issue until its update is applied or it is given back, and every ticket of
every epoch is applied exactly once, also when workers die or the job resumes.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class Ticket:
    """Batch number `batch` of epoch `epoch`, both counted from 0."""

    epoch: int
    batch: int


@lru_cache(maxsize=2)  # asynchronous workers are at most spread over the end and start of an epoch
def _permutation(seed: int, epoch: int, samples: int) -> Rows:
    """The order of all rows in one epoch, (samples,) int64, read-only."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    order = generator.permutation(samples).astype(np.int64, copy=False)
    order.flags.writeable = False
    return order


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batches of one epoch: a seeded permutation of all rows, cut into batches.

    Args:
        seed: the job's seed, >= 0.
        epoch: the epoch, counted from 0.
        samples: rows in the training set, >= 1.
        batch_size: samples in each batch, >= 1; the last batch holds what is left.

    Raises:
        ValueError: an argument is out of its range.
    """

    seed: int
    epoch: int
    samples: int
    batch_size: int

    def __post_init__(self) -> None:
        for name, least in (("seed", 0), ("epoch", 0), ("samples", 1), ("batch_size", 1)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"batch plan: {name} must be at least {least}, not {value}")

    def __len__(self) -> int:
        return -(-self.samples // self.batch_size)

    def count(self, batch: int) -> int:
        """Samples in the batch; costs no permutation.

        Raises:
            IndexError: the epoch has no such batch.
        """
        if not 0 <= batch < len(self):
            raise IndexError(
                f"batch {batch} is not in epoch {self.epoch}: its batches are 0..{len(self) - 1}"
            )
        return min(self.batch_size, self.samples - batch * self.batch_size)

    def rows(self, batch: int) -> Rows:
        """The row numbers of the batch, (count(batch),) int64, a copy the caller may change.

        Raises:
            IndexError: the epoch has no such batch.
        """
        count = self.count(batch)
        first = batch * self.batch_size
        return _permutation(self.seed, self.epoch, self.samples)[first : first + count].copy()


class TicketBook:
    """The coordinator's account of the tickets of a whole job.

    Memory is O(open tickets); a call costs O(log open) at most.

    Args:
        seed: the job's seed.
        samples: rows in the training set.
        batch_size: samples in a batch.
        epochs: number of epochs, >= 1.
    """

    def __init__(self, seed: int, samples: int, batch_size: int, epochs: int) -> None:
        if epochs < 1:
            raise ValueError(f"ticket book: epochs must be at least 1, not {epochs}")
        self._first = BatchPlan(seed, 0, samples, batch_size)
        self._epochs = epochs
        self._next = Ticket(0, 0)
        self._returned: list[Ticket] = []
        self._open: set[Ticket] = set()
        self._samples = 0
        self._refused = 0
        self._spent = 0

    @property
    def rows(self) -> int:
        """Rows in the training set."""
        return self._first.samples

    @property
    def position(self) -> int:
        """Samples done with, over all epochs: applied, spent or refused."""
        return self._samples + self._spent + self._refused

    @property
    def refused_samples(self) -> int:
        """Samples whose update was refused."""
        return self._refused

    @property
    def open(self) -> frozenset[Ticket]:
        """The tickets issued and neither applied nor given back (a snapshot: O(open))."""
        return frozenset(self._open)

    @property
    def samples(self) -> int:
        """Samples applied or spent so far, over all epochs."""
        return self._samples + self._spent

    @property
    def epoch(self) -> float:
        """Passes over the training set done so far: position / rows in the set."""
        return self.position / self._first.samples

    @property
    def finished(self) -> bool:
        """True when all tickets of all epochs are applied or refused, or as many samples spent."""
        spent = self.position >= self._epochs * self.rows
        return spent or (self._peek() is None and not self._open)

    def plan(self, epoch: int) -> BatchPlan:
        """The plan of an epoch of this job."""
        return BatchPlan(self._first.seed, epoch, self._first.samples, self._first.batch_size)

    def count(self, ticket: Ticket) -> int:
        """Samples of the ticket's batch."""
        return self._first.count(ticket.batch)

    def issue(self) -> Ticket | None:
        """The next ticket, now open: given-back ones first, in order; None when there is none."""
        ticket = self._peek()
        if ticket is None:
            return None
        if self._returned:
            heapq.heappop(self._returned)
        elif ticket.batch + 1 < len(self._first):
            self._next = Ticket(ticket.epoch, ticket.batch + 1)
        else:
            self._next = Ticket(ticket.epoch + 1, 0)
        self._open.add(ticket)
        return ticket

    def issue_round(self, slots: int) -> tuple[Ticket, ...]:
        """Up to `slots` tickets of one epoch, now open; empty when there is none."""
        tickets: list[Ticket] = []
        while len(tickets) < slots:
            ticket = self._peek()
            if ticket is None or (tickets and ticket.epoch != tickets[0].epoch):
                break
            self.issue()
            tickets.append(ticket)
        return tuple(tickets)

    def applied(self, ticket: Ticket) -> None:
        """Closes the ticket: its update is in the parameters.

        Raises:
            ValueError: the ticket is not open.
        """
        self._close(ticket)
        self._samples += self.count(ticket)

    def refused(self, ticket: Ticket) -> None:
        """Closes the ticket: its update was not fit for the parameters, and is left out.

        Raises:
            ValueError: the ticket is not open.
        """
        self._close(ticket)
        self._refused += self.count(ticket)

    def spend(self, samples: int) -> None:
        """Counts gradients of ``samples`` samples that no ticket names, as those of fixed slices or shards."""
        self._spent += samples

    def give_back(self, ticket: Ticket) -> None:
        """Takes back an open ticket (its worker is lost): it is issued again, before any other.

        Raises:
            ValueError: the ticket is not open.
        """
        self._close(ticket)
        heapq.heappush(self._returned, ticket)

    def state(self) -> dict[str, Any]:
        """The account as JSON values; open tickets are listed to be issued again after a resume."""
        again = sorted([*self._open, *self._returned])
        return {
            "seed": self._first.seed,
            "rows": self._first.samples,
            "batch_size": self._first.batch_size,
            "samples": self._samples,
            "refused": self._refused,
            "spent": self._spent,
            "next": [self._next.epoch, self._next.batch],
            "again": [[ticket.epoch, ticket.batch] for ticket in again],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over the account of `state()`; the tickets open then are issued again.

        The number of epochs may differ from the saved job's: more of them go on.

        Raises:
            ValueError: the state is of a job with other rows, batch size or seed (its tickets would
                name other samples), or its figures do not agree with each other.
        """
        for key, mine in (
            ("seed", self._first.seed),
            ("rows", self._first.samples),
            ("batch_size", self._first.batch_size),
        ):
            if state[key] != mine:
                raise ValueError(
                    f"cannot resume the batch plan: the saved job has {key} {state[key]}, this one "
                    f"has {mine}; resume with the saved value, or start a new run"
                )
        following = Ticket(*state["next"])
        again = sorted(Ticket(*pair) for pair in state["again"])
        issued = following.epoch * self._first.samples + following.batch * self._first.batch_size
        owed = sum(self.count(ticket) for ticket in again)
        done = state["samples"] + state["refused"]
        if issued - owed != done or (again and again[-1] >= following):
            raise ValueError(
                f"cannot resume the batch plan: {issued} samples issued, {owed} to issue again and "
                f"{done} applied or refused do not agree; use an earlier checkpoint"
            )
        self._next, self._returned, self._open = following, again, set()
        self._samples, self._refused = state["samples"], state["refused"]
        self._spent = state["spent"]

    def _peek(self) -> Ticket | None:
        """The ticket that issue() would give."""
        if self._returned:
            return self._returned[0]
        return self._next if self._next.epoch < self._epochs else None

    def _close(self, ticket: Ticket) -> None:
        if ticket not in self._open:
            raise ValueError(
                f"{ticket} is not open: it was never issued, or was already applied or given back"
            )
        self._open.remove(ticket)
