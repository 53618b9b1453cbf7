"""A replica: one model with its data, and the task verbs that it can perform.

A replica keeps nothing that the coordinator could not rebuild: parameters and buffers of one
version, and, while workers run synchronous rounds among themselves, the optimizer's state (sent
home by ``Fetch``). What a gradient is depends on (seed, version, ticket) only, random layers
included: the random number generator is seeded from the ticket.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from psopt.data.dataset import Dataset
from psopt.data.plan import BatchPlan, Ticket
from psopt.models.flat import FlatModel
from psopt.optim.finite import all_finite
from psopt.optim.first_order import FirstOrder
from psopt.optim.inner import norm
from psopt.optim.tree import flatten_tree, unflatten_tree
from psopt.replica.batch_tasks import HandOver
from psopt.replica.batch_verbs import perform_batch_task
from psopt.replica.memory import Memory, pinned
from psopt.replica.rounds import Kept, run_rounds
from psopt.replica.slices import perform_hand_over
from psopt.replica.spans import SpanLog
from psopt.replica.tally import tally
from psopt.replica.tasks import (
    Evaluate,
    Fetch,
    Gradient,
    Peers,
    Result,
    Rounds,
    Tally,
    Task,
    Vectors,
)

Loss = Callable[[Tensor, Tensor], Tensor]


class Replica:
    """Performs tasks on ``model`` with the rows of ``data``.

    Args:
        model: its vectors are overwritten by ``load``.
        loss: mean loss over a batch, ``loss(output, y) -> scalar``.
        data: training and test rows.
        plan: ``plan(epoch)`` says which rows make each batch.
        optimizer: makes the replica's own optimizer, for ``Rounds``.
        seed: the job's; seeds random layers together with the ticket.
        evaluation_batch: rows of one chunk of the test split.
        l2: weight of the penalty l2/2 |w|^2 that the objective adds to the mean loss.
        clock: where the time goes.

    Attributes:
        version: that the parameters are at; -1 before the first ``load``.
        carried: what came with the version beside the model's own vectors, on the host; None: nothing.
        poisoned: gradients come out as not a number, for a trial.
        kept: state before the rounds that ran last, where it was asked for.
        total: host vector (n,) for the sum of a round's gradients.
    """

    def __init__(
        self,
        model: FlatModel,
        loss: Loss,
        data: Dataset,
        plan: Callable[[int], BatchPlan],
        optimizer: Callable[[FlatModel], FirstOrder],
        *,
        seed: int,
        evaluation_batch: int,
        l2: float = 0.0,
        clock: SpanLog | None = None,
    ) -> None:
        self.model, self.loss, self.data, self.plan = model, loss, data, plan
        self.clock = clock or SpanLog()
        self.version = -1
        self.carried: Any = None
        self.kept: Kept | None = None
        self.device = model.parameters.device
        self.poisoned = False
        self._make_optimizer = optimizer
        self._optimizer: FirstOrder | None = None
        self._seed, self._chunk, self.l2 = seed, evaluation_batch, l2
        model.module.train()
        self._gradient = torch.zeros_like(model.parameters)
        self._gradient_views = model.split(self._gradient)
        self._start = [group.flat.clone() for group in model.buffers]
        self._slots: list[tuple[Tensor, tuple[Tensor, ...]]] = []
        self._sum = torch.zeros_like(model.parameters)
        out = (self._gradient, *(torch.zeros_like(group.flat) for group in model.buffers))
        on_host = self.device.type == "cpu"
        self._host_in = model.vectors if on_host else pinned(model.vectors)
        self._host_out = out if on_host else pinned(out)
        self.total = self._sum if on_host else pinned((self._sum,))[0]

    @property
    def inbox(self) -> Vectors:
        """Host vectors into which the crew receives a version before ``load``: on the CPU, the model's own."""
        return self._host_in

    @property
    def optimizer(self) -> FirstOrder:
        """This replica's own optimizer, made at its first use."""
        if self._optimizer is None:
            self._optimizer = self._make_optimizer(self.model)
        return self._optimizer

    def load(self, version: int, vectors: Vectors, structure: Any = None) -> None:
        """Take over ``vectors`` as ``version``.

        Args:
            version: the version's number.
            vectors: parameters and buffers, then optimizer tensors when ``structure`` is given.
            structure: of what is carried at the end of ``vectors``: optimizer state, or a direction.
        """
        own = self.model.vectors
        for mine, given in zip(own, vectors, strict=False):
            if mine.data_ptr() != given.data_ptr():
                mine.copy_(given, non_blocking=True)
        for loaded, group in zip(self._start, self.model.buffers, strict=True):
            loaded.copy_(group.flat)
        self.carried = None
        if structure is not None:
            self.carried = unflatten_tree(structure, vectors[len(own) :])
        self.version = version

    def perform(self, task: Task, peers: Peers, memory: Memory) -> Result:
        """Do ``task`` at the loaded version, which the task names, for the worker with ``memory``."""
        match task:
            case HandOver():
                return perform_hand_over(self, task, memory)
            case Gradient():
                with self.clock.span("compute"):
                    return self._perform_gradient(task)
            case Rounds():
                return run_rounds(self, task, peers)
            case Evaluate():
                with self.clock.span("evaluate"):
                    return self._perform_evaluate(task)
            case Fetch():
                return self._perform_fetch()
            case _:
                with self.clock.span("compute"):
                    return perform_batch_task(self, task, memory)

    def gradient(self, ticket: Ticket, flat: Tensor, views: tuple[Tensor, ...]) -> Tally:
        """Gradient of the objective over the ticket's rows, mean loss + l2/2 |w|^2; buffers advance.

        Where the objective is not finite, neither is the gradient: whoever sums it up will refuse
        it.

        Args:
            ticket: which rows.
            flat: receives the gradient, shape (n,), of the parameters' dtype.
            views: the views into ``flat``.

        Returns:
            Sums over the rows of the objective (the penalty counts once a row) and of the correct
            answers.
        """
        x, y = self.batch(ticket)
        loss, output = self.batch_gradient(x, y, views)
        self.model.gather_buffers()
        sums = tally(loss, output, y)
        if self.l2:
            sums = replace(sums, loss=sums.loss + sums.count * self._add_penalty(flat))
        if not math.isfinite(sums.loss):
            flat.fill_(math.nan)
        return sums

    def place(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Samples as a split gives them, on the replica's device and no narrower than its parameters."""
        x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
        return self.model.widen(x), self.model.widen(y)

    def batch_gradient(
        self, x: Tensor, y: Tensor, views: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """Gradient of the mean loss over some samples, without the penalty; the model's buffers advance.

        Args:
            x: inputs of the samples, as ``place`` gives them.
            y: their labels or targets, likewise.
            views: receive the gradient, with the parameters' shapes.

        Returns:
            (mean loss, 0-d; the model's output).
        """
        output: Tensor = self.model.module(x)
        loss = self.loss(output, y)
        torch.autograd.backward(loss)
        self.model.gather_gradients(views)
        for view in views if self.poisoned else ():
            view.fill_(math.nan)
        return loss, output

    def part(self, ticket: Ticket, views: tuple[Tensor, ...]) -> Tally:
        """As ``gradient``, of the data alone: without the penalty, and from the loaded buffers."""
        self.reset_buffers()
        x, y = self.batch(ticket)
        loss, output = self.batch_gradient(x, y, views)
        return tally(loss, output, y)

    def batch(self, ticket: Ticket) -> tuple[Tensor, Tensor]:
        """The ticket's samples and targets; random layers will be those of the ticket."""
        x, y = self.data.train.batch(self.plan(ticket.epoch).rows(ticket.batch))
        self.seed_random_layers(ticket.epoch, ticket.batch)
        return self.place(x, y)

    def slot(self, index: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Scratch vector number ``index`` for a slot's gradient, shape (n,), and its views."""
        while len(self._slots) <= index:
            row = torch.empty_like(self.model.parameters)
            self._slots.append((row, self.model.split(row)))
        return self._slots[index]

    def step(self, epoch: int) -> None:
        """One step of the replica's own optimizer along ``total``; the version advances."""
        if self._sum is not self.total:
            self._sum.copy_(self.total)
        self.optimizer.step(self._sum, epoch=epoch)
        self.version += 1

    def reset_buffers(self) -> None:
        """Bring the buffers back to those of the loaded version."""
        self.model.gather_buffers()
        for loaded, group in zip(self._start, self.model.buffers, strict=True):
            group.flat.copy_(loaded)

    def buffer_contributions(self, weight: float) -> list[Tensor]:
        """What one gradient says of the buffers: statistics times ``weight``; advance of the counters."""
        return [
            group.flat - loaded if group.counts else group.flat * weight
            for loaded, group in zip(self._start, self.model.buffers, strict=True)
        ]

    def settle_buffers(self, combined: Vectors) -> None:
        """Advance the buffers: to the mean of the statistics, and by the counters' advance."""
        for loaded, group, value in zip(self._start, self.model.buffers, combined, strict=True):
            group.flat.copy_(loaded + value if group.counts else value)
            loaded.copy_(group.flat)

    def _perform_gradient(self, task: Gradient) -> Result:
        self.reset_buffers()
        sums = self.gradient(task.ticket, self._gradient, self._gradient_views)
        if task.measured:
            sums = replace(sums, norm=norm(self._gradient))
        if task.weight != 1.0:
            self._gradient.mul_(task.weight)
        contributions = (self._gradient, *self.buffer_contributions(task.weight))
        finite = all_finite(contributions)
        for mine, value in zip(self._host_out, contributions, strict=True):
            if mine is not value:
                mine.copy_(value)
        return Result((replace(sums, finite=finite),), self._host_out, self.version)

    def _perform_evaluate(self, task: Evaluate) -> Result:
        self.reset_buffers()
        module, test = self.model.module, self.data.test
        module.eval()
        tallies = []
        with torch.inference_mode():
            for chunk in range(task.first, task.last):
                first = chunk * self._chunk
                x, y = test.range(first, min(first + self._chunk, len(test)))
                x, y = self.place(x, y)
                self.seed_random_layers(-1, chunk)
                output = module(x)
                tallies.append(tally(self.loss(output, y), output, y))
        module.train()
        return Result(tuple(tallies), (), self.version)

    def _perform_fetch(self) -> Result:
        structure, tensors = flatten_tree(self.optimizer.state())
        self.reset_buffers()
        vectors = tuple(v.detach().cpu() for v in (*self.model.vectors, *tensors))
        return Result((), vectors, self.version, structure)

    def _add_penalty(self, flat: Tensor) -> float:
        """Add the gradient of l2/2 |w|^2, l2 w, to ``flat``; returns the penalty (in float64)."""
        parameters = self.model.parameters
        flat.add_(parameters, alpha=self.l2)
        norm: float = torch.linalg.vector_norm(parameters, dtype=torch.float64).item()
        return self.l2 / 2 * norm * norm

    def seed_random_layers(self, epoch: int, batch: int) -> None:
        """Same masks for the same batch, whichever worker computes it and whatever came before."""
        mixed = (self._seed * 1_000_003 + epoch) * 1_000_003 + batch
        torch.default_generator.manual_seed(mixed % (1 << 63))
        if self.device.type == "cuda":
            torch.cuda.manual_seed(mixed % (1 << 63))
