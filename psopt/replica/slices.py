"""Slices of a batch: gradients in whole quanta, accrued where they are computed.

Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, algorithm 3 (ProcessPortion): a
model replica sums up the gradients of its portions and sends the sum only when asked. Sums of
floating-point numbers depend on their order; sums of whole multiples of one quantum do not, as long
as they stay below 2^63 of them. The rounding is that of fixed-point numbers; the coordinator chooses
the quanta (``psopt.schemes.quanta``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from psopt.optim.finite import all_finite
from psopt.optim.inner import norm_max
from psopt.replica.batch_tasks import Buffers, HandOver, Slices
from psopt.replica.memory import Memory
from psopt.replica.tasks import Result, Tally

_LARGEST = 2.0**1000  # beyond it an entry counts as not finite

if TYPE_CHECKING:
    from psopt.data.plan import Ticket
    from psopt.replica.replica import Replica


def perform_slices(replica: Replica, task: Slices, memory: Memory) -> Result:
    """Losses and gradients of the slices; see ``Slices``."""
    shape = (len(task.quanta), replica.model.parameters.numel())
    if task.alone:
        total = torch.zeros(shape, dtype=torch.int64, device=replica.device)
    else:
        if memory.accrued is None or memory.version != task.version:
            memory.accrued = torch.zeros(shape, dtype=torch.int64, device=replica.device)
            memory.version = task.version
        total = memory.accrued
    tallies, largest = [], 0.0
    for ticket in task.tickets:
        sums, entry = _slice(replica, task, ticket, total)
        tallies.append(sums)
        largest = max(largest, entry)
    vectors = (total.reshape(-1).cpu(),) if task.alone else ()
    return Result(tuple(tallies), vectors, replica.version, largest=largest)


def perform_hand_over(replica: Replica, task: HandOver, memory: Memory) -> Result:
    """What was accrued.

    Raises:
        RuntimeError: nothing was, at this version.
    """
    accrued, memory.accrued = memory.accrued, None
    if accrued is None or memory.version != task.version:
        raise RuntimeError(f"nothing is accrued at version {task.version}")
    return Result((), (accrued.reshape(-1).cpu(),), replica.version)


def perform_buffers(replica: Replica, task: Buffers) -> Result:
    """Statistics as cumulative averages over the tickets, whatever momentum the layers have."""
    replica.reset_buffers()
    update_bn((replica.batch(ticket)[0] for ticket in task.tickets), replica.model.module)
    replica.model.gather_buffers()
    vectors = tuple(group.flat.cpu().clone() for group in replica.model.buffers)
    return Result((Tally(0.0, None, 0, all_finite(vectors)),), vectors, replica.version)


def _slice(replica: Replica, task: Slices, ticket: Ticket, total: Tensor) -> tuple[Tally, float]:
    """Sums and largest entry of a slice; its entries are added to ``total`` if they are fit for it."""
    row, views = replica.slot(0)
    sums = replica.part(ticket, views)
    wide = row.double().mul_(sums.count / task.samples)
    largest = norm_max(wide)
    if not (math.isfinite(sums.loss) and largest <= _LARGEST):
        return replace(sums, finite=False), 0.0
    if largest <= task.most:
        for whole, quantum in zip(total, task.quanta, strict=True):
            multiples = torch.mul(wide, 1.0 / quantum).round_()
            whole.add_(multiples.to(torch.int64))
            wide.sub_(multiples.mul_(quantum))  # exact
    return sums, largest
