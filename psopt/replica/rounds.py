"""Synchronous rounds among the workers: gradients are summed in slot order, then every worker takes the same step.

Every replica holds the same parameters and the same optimizer state, sees the same sum bit for bit,
and so stays equal to the others without any parameter being sent. The coordinator only says which
tickets make the rounds.

Where a worker may die and the others go on (``Rounds.keep``), a replica keeps a copy of the state at
which the rounds begin. When a peer is gone it goes back to that and says so; the coordinator, whom
the death reaches as well, then has those that are left do all the rounds again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from psopt.optim.finite import all_finite
from psopt.optim.tree import flatten_tree, unflatten_tree
from psopt.replica.tasks import GONE_BACK, PeerGone, Peers, Result, Rounds, Tally, Vectors, deal

if TYPE_CHECKING:
    from psopt.data.plan import Ticket
    from psopt.replica.replica import Replica


def run_rounds(replica: Replica, task: Rounds, peers: Peers) -> Result:
    """Perform ``task`` on this replica together with ``peers``.

    Returns:
        Tallies of this worker's slots, round after round; ``version`` counts the steps taken. The
        rounds end early at an update that is not finite (gradient or statistics), on all workers
        alike, unless ``task.skip_bad``. Where a peer is gone, ``GONE_BACK``.

    Raises:
        PeerGone: a peer is gone, and nothing was kept.
    """
    if replica.kept is not None and replica.version != task.version:
        replica.kept.restore(replica)  # the rounds ended here, and broke off elsewhere
    if task.install and replica.carried is not None:
        replica.optimizer.load(replica.carried)
    replica.kept = Kept.of(replica) if task.keep else None
    peers.convene(task.members, task.meeting)
    try:
        return _run_rounds(replica, task, peers)
    except PeerGone:
        if replica.kept is None:
            raise
        replica.kept.restore(replica)
        return Result((), (), GONE_BACK)


@dataclass(frozen=True)
class Kept:
    """A replica's state before rounds, optimizer included."""

    version: int
    vectors: Vectors
    structure: Any
    tensors: Vectors

    @classmethod
    def of(cls, replica: Replica) -> Kept:
        """A copy of the present one."""
        structure, tensors = flatten_tree(replica.optimizer.state())
        replica.reset_buffers()
        vectors = tuple(vector.detach().clone() for vector in replica.model.vectors)
        return cls(replica.version, vectors, structure, tuple(t.clone() for t in tensors))

    def restore(self, replica: Replica) -> None:
        """Bring it back."""
        replica.load(self.version, self.vectors)
        replica.optimizer.load(unflatten_tree(self.structure, self.tensors))


def _run_rounds(replica: Replica, task: Rounds, peers: Peers) -> Result:
    tallies: list[Tally] = []
    for tickets in task.rounds:
        sums, finite = _run_round(replica, tickets, peers, replica.total)
        tallies += sums
        if not finite and not task.skip_bad:
            break
    return Result(tuple(tallies), (), replica.version)


def _run_round(
    replica: Replica, tickets: tuple[Ticket, ...], peers: Peers, total: Tensor
) -> tuple[list[Tally], bool]:
    """One round into ``total``, the gradient of the mean loss over all its tickets' rows."""
    dealt = deal(len(tickets), peers.size)
    counts = [len(block) for block in dealt]
    peers.finish()
    with replica.clock.span("compute"):
        rows, tallies = _compute_slots(replica, tickets, dealt[peers.index])
    combined = tuple(torch.empty_like(g.flat, device="cpu") for g in replica.model.buffers)
    for index, out in enumerate((total, *combined)):
        peers.sum_rows([row[index] for row in rows], counts, out)
    finite = all_finite((total, *combined))
    if finite:
        with replica.clock.span("update"):
            replica.step(tickets[0].epoch)
            replica.settle_buffers(combined)
    else:
        tallies = [
            replace(tally, finite=all_finite(row), refused=True)
            for tally, row in zip(tallies, rows, strict=True)
        ]
    return tallies, finite


def _compute_slots(
    replica: Replica, tickets: tuple[Ticket, ...], slots: range
) -> tuple[list[list[Tensor]], list[Tally]]:
    """This worker's slots: what each contributes (gradient, then buffers), weighted by its samples."""
    plan = replica.plan(tickets[0].epoch)
    samples = sum(plan.count(ticket.batch) for ticket in tickets)
    rows, tallies = [], []
    for index, slot in enumerate(slots):
        (row, views), weight = replica.slot(index), plan.count(tickets[slot].batch) / samples
        replica.reset_buffers()
        tallies.append(replica.gradient(tickets[slot], row, views))
        if weight != 1.0:
            row.mul_(weight)
        rows.append([vector.cpu() for vector in (row, *replica.buffer_contributions(weight))])
    return rows, tallies
