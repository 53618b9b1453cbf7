"""The parameter server: flat parameters, buffers, the optimizer, and the version that counts its updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from psopt.crew.base import Result, Vectors
from psopt.models.flat import FlatModel, parameters_sha256
from psopt.optim.first_order import FirstOrder
from psopt.optim.tree import flatten_tree, unflatten_tree


class ParameterServer:
    """Owns the parameters of the job.

    Args:
        model: its vectors are the server's; on the host.
        optimizer: steps on ``model.parameters``.
    """

    def __init__(self, model: FlatModel, optimizer: FirstOrder) -> None:
        self.model, self.optimizer = model, optimizer
        self._version = 0
        self.inbox: Vectors = tuple(torch.zeros_like(vector) for vector in model.vectors)

    @property
    def version(self) -> int:
        """Number of updates made."""
        return self._version

    @property
    def vectors(self) -> Vectors:
        """Parameters and buffers (live)."""
        return self.model.vectors

    @torch.no_grad()
    def apply(
        self, vectors: Vectors, *, epoch: int, weight: float = 1.0, rate: float = 1.0
    ) -> None:
        """One update.

        Args:
            vectors: gradient (n,), changed in place; statistics, towards which the server's move by
                the update's weight; advance of the counters.
            epoch: epochs that are over.
            weight: factor on the gradient.
            rate: factor on the learning rate of this step.
        """
        gradient, *buffers = vectors
        if weight != 1.0:
            gradient.mul_(weight)
        self.optimizer.step(gradient, epoch=epoch, rate=rate)
        for group, value in zip(self.model.buffers, buffers, strict=True):
            if group.counts:
                group.flat.add_(value)
            elif weight * rate == 1.0:
                group.flat.copy_(value)
            else:
                group.flat.lerp_(value, weight * rate)
        self._version += 1

    @torch.no_grad()
    def place(self, parameters: Tensor) -> None:
        """Put ``parameters`` (n,) in the place of the server's; the version advances."""
        self.model.parameters.copy_(parameters)
        self._version += 1

    def settle(self, buffers: Vectors) -> None:
        """Replace the buffers; the version advances."""
        for group, value in zip(self.model.buffers, buffers, strict=True):
            group.flat.copy_(value)
        self._version += 1

    def portable(self) -> tuple[Vectors, Any]:
        """Parameters, buffers and optimizer tensors (live), and the structure of the latter."""
        structure, tensors = flatten_tree(self.optimizer.state())
        return (*self.vectors, *tensors), structure

    def follow(self, version: int) -> None:
        """The workers are at ``version`` now; parameters come with ``adopt``."""
        self._version = version

    @torch.no_grad()
    def adopt(self, result: Result) -> None:
        """Take over the state that a worker sent home."""
        own = self.vectors
        for mine, given in zip(own, result.vectors, strict=False):
            mine.copy_(given)
        self.optimizer.load(unflatten_tree(result.structure, result.vectors[len(own) :]))
        self._version = result.version

    def sha256(self) -> str:
        """Identity of the parameters."""
        return parameters_sha256(self.model.parameters)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the server (live tensors)."""
        return {
            "parameters": self.model.named_parameters(),
            "buffers": self.model.named_buffers(),
            "aliases": self.model.aliases(),
            "optimizer": self.optimizer.state(),
            "version": self._version,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state.

        Raises:
            ValueError: it is of another model or optimizer.
        """
        self.model.load_named(state["parameters"], state["buffers"])
        self.optimizer.load(state["optimizer"])
        self._version = int(state["version"])
