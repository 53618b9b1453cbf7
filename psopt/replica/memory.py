"""What one worker keeps from task to task: nothing that could not be made again from the tasks.

A replica on a real rank has one memory; the virtual workers of one process share a replica and have
a memory each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from psopt.data.shards import Shard


@dataclass(frozen=True, slots=True)
class Known:
    """Mean loss of a shard and its gradient (n,), without penalty, at the named version."""

    version: int
    loss: float
    gradient: Tensor


@dataclass(slots=True)
class Memory:
    """A worker's own.

    Attributes:
        version: at which ``accrued`` was computed.
        accrued: sum over slices (quanta, n) int64; None when nothing is.
        shards: what was computed of a shard last.
        bases: what a local solve on a shard began from; it may begin there again.
    """

    version: int = -1
    accrued: Tensor | None = None
    shards: dict[Shard, Known] = field(default_factory=dict)
    bases: dict[Shard, Known] = field(default_factory=dict)


def pinned(vectors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Page-locked host vectors of the same sizes: a GPU copies from and to those at full speed."""
    return tuple(torch.empty(v.shape, dtype=v.dtype, pin_memory=True) for v in vectors)
