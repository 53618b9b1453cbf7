"""Models for tests, named in job files as `tests.zoo:NAME`."""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import nn


def normed(input_shape: tuple[int, ...], outputs: int, dropout: float = 0.0) -> nn.Module:
    """Batch normalisation, and dropout if asked for."""
    return nn.Sequential(
        OrderedDict(
            flat=nn.Flatten(),
            first=nn.Linear(math.prod(input_shape), 8),
            norm=nn.BatchNorm1d(8),
            active=nn.ReLU(),
            drop=nn.Dropout(dropout),
            last=nn.Linear(8, outputs),
        )
    )


class Shifted(nn.Module):
    """Subtracts a running mean in training too, and so its gradient depends on the buffer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = x - self.mean
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.calls = self.calls + 1
        return result


def replacing(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Puts new tensors in the place of its buffers."""
    width = math.prod(input_shape)
    return nn.Sequential(
        nn.Flatten(), Shifted(width), nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, outputs)
    )


def shifted_and_normed(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A buffer that the objective depends on, and another whose statistics are made anew for a test."""
    width = math.prod(input_shape)
    return nn.Sequential(
        nn.Flatten(),
        Shifted(width),
        nn.Linear(width, 8),
        nn.Tanh(),
        nn.BatchNorm1d(8),
        nn.Linear(8, outputs),
    )
