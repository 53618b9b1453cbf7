"""What a worker does on a shard: its gradient, a local problem, losses along a direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from psopt.data.shards import part_of
from psopt.optim.finite import is_finite
from psopt.replica.batch_tasks import LocalSolve, Probe, ShardGradient
from psopt.replica.local import Local, solve
from psopt.replica.memory import Known, Memory
from psopt.replica.tally import tally
from psopt.replica.tasks import Result, Tally

if TYPE_CHECKING:
    from psopt.data.shards import Shard
    from psopt.replica.replica import Replica

_HELD = 256 << 20  # bytes of samples that are kept from pass to pass of one task


def perform_shard_gradient(replica: Replica, task: ShardGradient, memory: Memory) -> Result:
    """Mean loss and gradient; the gradient is kept for a local problem at the same version."""
    part = _Part(replica, task.shard)
    gradient = torch.empty_like(replica.model.parameters)
    tallies = part.gradient(gradient)
    out = gradient * task.weight
    finite = is_finite(out)
    if (
        finite
    ):  # else another worker may be asked, and a local problem begins with a gradient of its own
        memory.shards[task.shard] = Known(task.version, tallies.loss / tallies.count, gradient)
    return Result(
        (Tally(tallies.loss, tallies.correct, tallies.count, finite),), (out.cpu(),), task.version
    )


def perform_local_solve(replica: Replica, task: LocalSolve, memory: Memory) -> Result:
    """The way to the local problem's minimum; its tally counts the samples worked on.

    Its loss is -inf where there is no minimum, else 0.
    """
    part = _Part(replica, task.shard, task.part)
    start = replica.model.parameters.clone()
    known = _known(part, task, memory)
    l2 = replica.l2 if task.penalty else 0.0
    if task.eta is None:
        gradient = torch.add(known.gradient, start, alpha=l2)
    else:
        gradient = replica.carried["direction"].to(start.device) * task.eta
    local = Local(
        part.loss_at,
        part.batch_at,
        part.products,
        len(part.batches),
        start,
        known.loss,
        known.gradient,
        gradient,
        l2,
        task.mu,
        (task.shard.seed, task.shard.index, task.turn),
    )
    solution = solve(local, task.method)
    way, loss = solution.way, -math.inf if solution.endless else 0.0
    replica.model.parameters.copy_(start)
    count = round((solution.passes + (task.base is None)) * part.count)
    way.mul_(task.weight)
    return Result((Tally(loss, None, count, is_finite(way)),), (way.cpu(),), task.version)


def _known(part: _Part, task: LocalSolve, memory: Memory) -> Known:
    """Loss and gradient of the part at the replica's parameters."""
    for kept in (memory.shards.pop(task.shard, None), memory.bases.pop(task.shard, None)):
        if kept is not None and kept.version == task.base and task.part == 1.0:
            memory.bases[task.shard] = kept
            return kept
    gradient = torch.empty_like(part.parameters)
    tallies = part.gradient(gradient)
    known = Known(task.version, tallies.loss / tallies.count, gradient)
    if task.base is not None and task.part == 1.0 and is_finite(gradient):
        memory.bases[task.shard] = replace(known, version=task.base)
    return known


def perform_probe(replica: Replica, task: Probe) -> Result:
    """Losses along a direction, one tally a step."""
    part = _Part(replica, task.shard)
    parameters = replica.model.parameters
    start = parameters.clone()
    direction = replica.carried["direction"].to(start.device) if task.steps else None
    tallies = []
    for step in task.steps or (0.0,):
        if direction is not None:
            torch.add(start, direction, alpha=step, out=parameters)
        tallies.append(part.loss())
    parameters.copy_(start)
    return Result(tuple(tallies), (), task.version)


class _Part:
    """A shard's rows, or the first of them, in batches of the job's size."""

    def __init__(self, replica: Replica, shard: Shard, part: float = 1.0) -> None:
        self._replica, self._index = replica, shard.index
        self.parameters = replica.model.parameters
        rows = shard.rows(replica.data.train)
        rows = rows[: part_of(len(rows), part)]
        size = replica.plan(0).batch_size
        self.count = len(rows)
        self.batches = [rows[first : first + size] for first in range(0, len(rows), size)]
        self._held: dict[int, tuple[Tensor, Tensor]] = {}
        self._room = _HELD

    def gradient(self, out: Tensor) -> Tally:
        """Sums over the part at the replica's parameters; the gradient of its mean loss into ``out`` (n,)."""
        loss, correct, known = 0.0, 0, True
        row, views = self._replica.slot(0)
        out.zero_()
        for k, rows in enumerate(self.batches):
            sums = self._pass(k, views)
            out.add_(row.mul_(len(rows) / self.count))
            loss += sums.loss
            known = known and sums.correct is not None
            correct += sums.correct or 0
        return Tally(loss, correct if known else None, self.count)

    def loss_at(self, w: Tensor, out: Tensor) -> float:
        """Mean loss at ``w``; its gradient into ``out``."""
        self.parameters.copy_(w)
        return self.gradient(out).loss / self.count

    def batch_at(self, k: int, w: Tensor, out: Tensor) -> None:
        """What batch ``k`` says of the gradient of the part's mean loss at ``w``, into ``out``.

        Its own gradient, times its size over the mean size: all batches alike say the part's.
        """
        self.parameters.copy_(w)
        self._pass(k, self._replica.model.split(out))
        out.mul_(len(self.batches[k]) * len(self.batches) / self.count)

    def loss(self) -> Tally:
        """Sums over the part at the replica's parameters, without a gradient."""
        total = 0.0
        with torch.no_grad():
            for k in range(len(self.batches)):
                x, y = self._data(k)
                total += float(self._loss(x, y)) * len(y)
        return Tally(total, None, self.count)

    def products(self) -> Callable[[Tensor], Tensor]:
        """Products with the Hessian of the mean loss at the replica's parameters."""
        model = self._replica.model
        only = len(self.batches) == 1
        graph = self._graph(0) if only else None

        def product(v: Tensor) -> Tensor:
            if graph is not None:
                return model.product(graph, v)
            total = torch.zeros_like(v)
            for k, rows in enumerate(self.batches):
                total.add_(model.product(self._graph(k), v).mul_(len(rows) / self.count))
            return total

        return product

    def _pass(self, k: int, views: tuple[Tensor, ...]) -> Tally:
        x, y = self._data(k)
        loss, output = self._replica.batch_gradient(x, y, views)
        return tally(loss, output, y)

    def _graph(self, k: int) -> Tensor:
        return self._replica.model.gradient_graph(self._loss(*self._data(k)))

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self._replica.loss(self._replica.model.module(x), y)

    def _data(self, k: int) -> tuple[Tensor, Tensor]:
        """Batch ``k``, kept for the next pass as long as there is room; buffers and random layers as for the first."""
        self._replica.reset_buffers()
        self._replica.seed_random_layers(-2 - self._index, k)
        if k in self._held:
            return self._held[k]
        x, y = self._replica.place(*self._replica.data.train.batch(self.batches[k]))
        if x.nbytes <= self._room:
            self._room -= x.nbytes
            self._held[k] = x, y
        return x, y
