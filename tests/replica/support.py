"""Small models on small data: what replicas and crews are tested with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from psopt.config import OptimizerConfig, SchedulerConfig
from psopt.data.plan import BatchPlan, TicketBook
from psopt.models.flat import FlatModel
from psopt.optim.first_order import FirstOrder
from psopt.replica.replica import Replica
from psopt.roles.server import ParameterServer

FEATURES, CLASSES = 7, 3


class Rows:
    """A split in memory."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, rows: Iterable[int]) -> tuple[Tensor, Tensor]:
        index = torch.from_numpy(np.array(rows, dtype=np.int64))
        return self.x.index_select(0, index), self.y.index_select(0, index)

    def range(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        return self.x[first:last].clone(), self.y[first:last].clone()


@dataclass
class Data:
    train: Rows
    test: Rows


class Replacing(nn.Module):
    """Puts a new tensor in the place of its buffer, in training and in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        result = x - self.mean
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.calls = self.calls + 1
        return result


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, CLASSES))


def norm(width: int = 5) -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, CLASSES)
    )


def wide() -> nn.Module:
    """More bytes than workers send in one exchange."""
    return norm(5003)


def dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 9), nn.Dropout(0.5), nn.Linear(9, CLASSES))


def replacing() -> nn.Module:
    return nn.Sequential(Replacing(), plain())


def evaluating() -> nn.Module:
    """In evaluation mode, as a factory may return it."""
    return nn.Sequential(norm(), nn.Dropout(0.5)).eval()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": plain,
    "norm": norm,
    "wide": wide,
    "dropout": dropout,
    "replacing": replacing,
    "evaluating": evaluating,
}
SGD = {"name": "SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True}
ADAM = {"name": "Adam", "lr": 0.01}
ONE_CYCLE = {"name": "OneCycleLR", "max_lr": 0.2, "total_steps": 40}


@dataclass(frozen=True)
class Setup:
    """What a small job is made of; every rank can make it again."""

    model: str = "norm"
    optimizer: tuple[tuple[str, Any], ...] = tuple(SGD.items())
    scheduler: tuple[tuple[str, Any], ...] = ()
    samples: int = 101
    batch: int = 8
    tests: int = 45
    chunk: int = 10
    seed: int = 1
    poisoned: int | None = None

    def flat(self) -> FlatModel:
        torch.manual_seed(self.seed)
        return FlatModel(MODELS[self.model]())

    def data(self) -> Data:
        """Random samples; those of the poisoned row are infinite."""
        generator = torch.Generator().manual_seed(self.seed)
        splits = []
        for count in (self.samples, self.tests):
            x = torch.randn(count, FEATURES, generator=generator)
            splits.append(Rows(x, torch.randint(CLASSES, (count,), generator=generator)))
        if self.poisoned is not None:
            splits[0].x[self.poisoned] = float("inf")
        return Data(*splits)

    def book(self, epochs: int = 10) -> TicketBook:
        return TicketBook(self.seed, self.samples, self.batch, epochs)

    def plan(self, epoch: int) -> BatchPlan:
        return self.book().plan(epoch)

    def first_order(self, model: FlatModel) -> FirstOrder:
        scheduler = SchedulerConfig(**dict(self.scheduler)) if self.scheduler else None
        optimizer = OptimizerConfig(**dict(self.optimizer))
        return FirstOrder(model.parameters, model.shapes, optimizer, scheduler)

    def replica(self, **changes: Any) -> Replica:
        arguments: dict[str, Any] = {
            "model": self.flat(),
            "loss": functional.cross_entropy,
            "data": self.data(),
            "plan": self.plan,
            "optimizer": self.first_order,
            "seed": self.seed,
            "evaluation_batch": self.chunk,
        }
        return Replica(**{**arguments, **changes})

    def server(self, version: int = 0) -> ParameterServer:
        model = self.flat()
        server = ParameterServer(model, self.first_order(model))
        server.follow(version)
        return server


def bits(tensors: Iterable[Tensor]) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Dtype, shape and bytes: equal when the tensors are the same to the last bit."""
    found = []
    for tensor in tensors:
        flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.detach().reshape(-1))
        found.append((str(tensor.dtype), tuple(tensor.shape), _bytes(flat)))
    return found


def _bytes(flat: Tensor) -> bytes:
    return flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""
