"""Ridge and logistic problems in float64 whose losses, gradients and Hessians are known in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from psopt.data.shards import Shard
from psopt.models import build_loss, build_model
from psopt.models.flat import FlatModel
from psopt.optim.tree import flatten_tree
from psopt.replica.memory import Memory
from psopt.replica.replica import Replica
from psopt.replica.tasks import Alone, Result, Task
from tests.replica.support import FEATURES, Data, Rows, Setup

L2 = 0.1
SHARD = Shard(1, 3, "iid", 1)


@dataclass
class Problem:
    """A replica with its problem, and a worker's memory."""

    kind: str
    replica: Replica
    memory: Memory

    @property
    def w(self) -> Tensor:
        return self.replica.model.parameters

    def perform(self, task: Task) -> Result:
        return self.replica.perform(task, Alone(), self.memory)

    def lend(self, version: int, direction: Tensor) -> None:
        """The same parameters under another version, with a direction beside them."""
        structure, tensors = flatten_tree({"direction": direction})
        vectors = tuple(vector.clone() for vector in self.replica.model.vectors)
        self.replica.load(version, (*vectors, *tensors), structure)

    def move(self, version: int, w: Tensor) -> None:
        """Other parameters."""
        self.replica.load(version, (w.clone(), *self.replica.model.vectors[1:]))

    def rows(self, shard: Shard = SHARD, part: float = 1.0) -> tuple[Tensor, Tensor]:
        """Samples (n, d) and targets (n,) of a shard, in float64."""
        rows: Any = shard.rows(self.replica.data.train)
        x, y = self.replica.data.train.batch(rows[: max(1, round(part * len(rows)))])
        return x.double(), y.double().reshape(-1)

    def value(self, w: Tensor, x: Tensor, y: Tensor) -> float:
        """Mean loss."""
        if self.kind == "linear":
            return float(((x @ w - y) ** 2).mean())
        return float(torch.log1p(torch.exp(-(2 * y - 1) * (x @ w))).mean())

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Of the mean loss."""
        if self.kind == "linear":
            return 2 / len(x) * x.T @ (x @ w - y)
        return x.T @ (torch.sigmoid(x @ w) - y) / len(x)

    def hessian(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Of the mean loss."""
        if self.kind == "linear":
            return 2 / len(x) * x.T @ x
        p = torch.sigmoid(x @ w)
        return x.T @ (x * (p * (1 - p))[:, None]) / len(x)


def split(kind: str, count: int, seed: int = 1) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator)
    if kind == "linear":
        return Rows(x, torch.randn(count, 1, generator=generator))
    return Rows(x, torch.randint(2, (count,), generator=generator))


def problem(kind: str, *, samples: int = 100, batch: int = 1000, l2: float = L2) -> Problem:
    """At random parameters, version 0."""
    module = build_model(
        kind,
        kwargs={"bias": False},
        input_shape=(FEATURES,),
        outputs=1 if kind == "linear" else 2,
        seed=1,
    )
    model = FlatModel(module.double())
    model.parameters.normal_(generator=torch.Generator().manual_seed(2))
    data = Data(split(kind, samples), split(kind, 9, seed=3))
    loss = build_loss("mse" if kind == "linear" else "logistic")
    setup = Setup(samples=samples, batch=batch)
    replica = setup.replica(model=model, loss=loss, data=data, l2=l2)
    replica.load(0, replica.model.vectors)
    return Problem(kind, replica, Memory())


def network(model: str = "norm", *, samples: int = 60, batch: int = 8, l2: float = 0.0) -> Problem:
    """A small float32 network of ``tests.replica.support``, version 0."""
    replica = Setup(model, samples=samples, batch=batch).replica(l2=l2)
    replica.load(0, replica.model.vectors)
    return Problem(model, replica, Memory())
