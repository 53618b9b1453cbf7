"""Whether a vector may touch the parameters."""

from __future__ import annotations

import torch
from torch import Tensor


def is_finite(vector: Tensor) -> bool:
    """True when every element is finite; one pass over ``vector`` in the usual case."""
    total = vector.sum().item()
    return total - total == 0.0 or bool(torch.isfinite(vector).all())
