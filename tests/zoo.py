"""Models for tests, named in job files as `tests.zoo:NAME`."""

from __future__ import annotations

import math
from collections import OrderedDict

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
