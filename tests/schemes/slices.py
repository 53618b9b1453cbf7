"""Slices whose gradients are written down, on virtual workers: what tests of slicing evaluate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from psopt.crew.base import Evaluate, HandOver, Result, Slices, Tally, Ticket
from psopt.crew.faults import Faults
from psopt.crew.sim import SimCrew
from psopt.crew.virtual import Network
from psopt.data.plan import TicketBook
from psopt.replica.memory import Memory
from psopt.replica.slices import perform_hand_over, perform_slices
from psopt.roles.server import ParameterServer
from psopt.schemes.base import Context
from psopt.schemes.batch import SolverState
from psopt.schemes.lbfgs_static import LbfgsStatic
from psopt.schemes.sandblaster import Sandblaster
from psopt.schemes.slicing import Evaluation

N, BATCH = 5, 3
WAYS = {
    "dynamic": Sandblaster(name="sandblaster"),
    "one": Sandblaster(name="sandblaster", slices=1),
    "many": Sandblaster(name="sandblaster", slices=7),
    "static": LbfgsStatic(name="lbfgs_static"),
}

Part = tuple[float, Tensor]
"""Mean loss and gradient of a slice."""


@dataclass
class Source:
    """Stands for a replica: the slices' losses and gradients are a function of (parameters, slice)."""

    part_of: Callable[[float, int], Part]
    slices: int
    dtype: torch.dtype
    version: int = -1
    done: list[tuple[int, int]] = field(default_factory=list)  # version and slice

    def __post_init__(self) -> None:
        self.device = torch.device("cpu")
        self.model = SimpleNamespace(parameters=torch.zeros(N, dtype=self.dtype))

    @property
    def samples(self) -> int:
        """The last slice has one sample less."""
        return self.slices * BATCH - 1

    def count(self, slice_: int) -> int:
        return BATCH - (slice_ == self.slices - 1)

    def load(self, version: int, vectors: Any, structure: Any) -> None:
        self.version = version
        self.model.parameters.copy_(vectors[0])

    def slot(self, index: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        row = torch.empty(N, dtype=self.dtype)
        return row, (row,)

    def part(self, ticket: Ticket, views: tuple[Tensor, ...]) -> Tally:
        self.done.append((self.version, ticket.batch))
        loss, gradient = self.part_of(float(self.model.parameters[0]), ticket.batch)
        views[0].copy_(gradient)
        count = self.count(ticket.batch)
        return Tally(loss * count, ticket.batch, count)

    def perform(self, task: Any, peers: Any, memory: Memory) -> Result:
        assert task.version == self.version
        if isinstance(task, Evaluate):
            return Result((Tally(0.0, 0, 1),), (), self.version)
        if isinstance(task, HandOver):
            return perform_hand_over(self, task, memory)  # type: ignore[arg-type]
        assert isinstance(task, Slices)
        return perform_slices(self, task, memory)  # type: ignore[arg-type]

    def exact(self, at: float) -> tuple[list[Fraction], float]:
        """The mean gradient, and the largest entry that a slice adds to it."""
        total, largest = [Fraction(0)] * N, 0.0
        for k in range(self.slices):
            gradient = self.part_of(at, k)[1].to(self.dtype).tolist()
            share = Fraction(self.count(k), self.samples)
            total = [t + Fraction(g) * share for t, g in zip(total, gradient, strict=True)]
            largest = max(largest, *(abs(g) * float(share) for g in gradient))
        return total, largest


class Bench:
    """Evaluates one point after another.

    Args:
        part_of: see ``Source``.
        slices: how many.
        workers: how many.
        way: of ``WAYS``.
        compute: seconds that a worker takes for so many samples.
        latency: seconds.
        deaths: when workers die.
    """

    def __init__(
        self,
        part_of: Callable[[float, int], Part],
        *,
        slices: int = 20,
        workers: int = 1,
        way: str = "dynamic",
        compute: Callable[[int, int], float] = lambda worker, samples: samples / BATCH,
        latency: float = 1e-4,
        deaths: Mapping[int, float] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.source = Source(part_of, slices, dtype)
        server: Any = ParameterServer.__new__(ParameterServer)
        server.model = SimpleNamespace(parameters=torch.zeros(N, dtype=dtype), buffers=())
        server.model.vectors = (server.model.parameters,)
        server._version = 0
        self.crew = SimCrew(
            self.source,  # type: ignore[arg-type]
            workers,
            compute,
            Network(latency, 1e9),
            faults=Faults(deaths=deaths or {}),
        )
        book = TicketBook(1, self.source.samples, BATCH, 10**6)
        self.context = Context(self.crew, server, book)
        self.context.publish()
        self.state = SolverState(None, ())  # type: ignore[arg-type]
        self.scheme = WAYS[way]

    def at(self, point: float) -> Evaluation:
        """Evaluate where all parameters are ``point``."""
        self.context.place(torch.full_like(self.context.server.vectors[0], point))
        evaluation = self.scheme._evaluate(self.context, self.state)
        self.state.largest = evaluation.largest or self.state.largest
        return evaluation

    def test(self) -> None:
        """What the coordinator does in the middle of a run."""
        version = self.context.server.version
        self.crew.gather([Evaluate(version, k, k + 1) for k in range(len(self.crew.workers))])

    def check(self, point: float, evaluation: Evaluation) -> None:
        """The sum is right, and so each slice counts once: parts differ by more than what is rounded."""
        exact, largest = self.source.exact(point)
        slices, kept = self.source.slices, 24 if self.source.dtype == torch.float32 else 51
        tolerance = largest * slices * 2.0**-kept
        for value, right in zip(evaluation.gradient.tolist(), exact, strict=True):
            assert abs(Fraction(value) - right) <= tolerance
        losses = [self.source.part_of(point, k)[0] * self.source.count(k) for k in range(slices)]
        assert evaluation.loss == math.fsum(losses) / self.source.samples
        assert evaluation.tally.correct == slices * (slices - 1) // 2
        assert evaluation.tally.count == self.source.samples


def bits(evaluation: Evaluation) -> Any:
    """To compare two evaluations, to the last bit."""
    tally = (repr(evaluation.tally.loss), evaluation.tally.correct, evaluation.tally.finite)
    return repr(evaluation.loss), evaluation.gradient.numpy().tobytes(), tally


@cache
def _random(slice_: int) -> Tensor:
    generator = torch.Generator().manual_seed(slice_)
    return torch.randn(2, N, generator=generator, dtype=torch.float64)


def linear(point: float, slice_: int) -> Part:
    """Slice k: loss and gradient that differ from slice to slice, entry to entry and point to point."""
    base, slope = _random(slice_)
    return float(base[0]) + point, base + slope * point + 2.0 * slice_
