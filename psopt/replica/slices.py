"""Slices of a batch: gradients in whole quanta, accrued where they are computed.

Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, algorithm 3 (ProcessPortion): a
model replica sums up the gradients of its portions and sends the sum only when asked. Sums of
floating-point numbers depend on their order; sums of whole multiples of one quantum do not, as long
as they stay below 2^63 of them. The rounding is that of fixed-point numbers: the coordinator chooses
the quantum so small that it is far below what the model's dtype resolves.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from psopt.optim.inner import norm_max
from psopt.replica.batch_tasks import Buffers, HandOver, Slices
from psopt.replica.memory import Memory
from psopt.replica.tasks import Result, Tally

if TYPE_CHECKING:
    from psopt.data.plan import Ticket
    from psopt.replica.replica import Replica


def perform_slices(replica: Replica, task: Slices, memory: Memory) -> Result:
    """Losses and gradients of the slices; see ``Slices``."""
    tallies, largest = [], 0.0
    total = None
    for ticket in task.tickets:
        sums, most, quanta = _slice(replica, task, ticket)
        tallies.append(sums)
        largest = max(largest, most)
        if quanta is not None:
            total = quanta if total is None else total.add_(quanta)
    vectors: tuple[Tensor, ...] = ()
    if total is not None:
        if task.alone:
            vectors = (total.cpu(),)
        elif memory.accrued is None or memory.version != task.version:
            memory.version, memory.accrued = task.version, total
        else:
            memory.accrued.add_(total)
    return Result(tuple(tallies), vectors, replica.version, largest=largest)


def perform_hand_over(replica: Replica, task: HandOver, memory: Memory) -> Result:
    """What was accrued.

    Raises:
        RuntimeError: nothing was, at this version.
    """
    accrued, memory.accrued = memory.accrued, None
    if accrued is None or memory.version != task.version:
        raise RuntimeError(f"nothing is accrued at version {task.version}")
    return Result((), (accrued.cpu(),), replica.version)


def perform_buffers(replica: Replica, task: Buffers) -> Result:
    """Statistics as cumulative averages over the tickets, whatever momentum the layers have."""
    modules = replica.model.module.modules()
    layers = [m for m in modules if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    replica.reset_buffers()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    with torch.no_grad():
        for ticket in task.tickets:
            x, _ = replica.batch(ticket)
            replica.model.module(x)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    replica.model.gather_buffers()
    vectors = tuple(group.flat.cpu().clone() for group in replica.model.buffers)
    return Result((), vectors, replica.version)


def _slice(replica: Replica, task: Slices, ticket: Ticket) -> tuple[Tally, float, Tensor | None]:
    """Sums, largest entry, and the entries in quanta; none where they are not finite or not wanted."""
    row, views = replica.slot(0)
    sums = replica.part(ticket, views)
    wide = row.double().mul_(sums.count / task.samples)
    largest = norm_max(wide)
    if not (math.isfinite(sums.loss) and largest <= (task.most if task.quantum else math.inf)):
        return replace(sums, finite=False), largest, None
    if not task.quantum:
        return sums, largest, None
    return sums, largest, wide.mul_(1.0 / task.quantum).round_().to(torch.int64)
