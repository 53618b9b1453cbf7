"""Whether vectors may touch the parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def is_finite(vector: Tensor) -> bool:
    """True when every element is finite; one pass over ``vector`` in the usual case."""
    total = vector.sum().item()
    return total - total == 0.0 or bool(torch.isfinite(vector).all())


def all_finite(vectors: Iterable[Tensor]) -> bool:
    """True when every element of every floating vector is finite; counters always are."""
    return all(is_finite(vector) for vector in vectors if vector.is_floating_point())
