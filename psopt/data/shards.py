"""Shards: fixed parts of the training set, for methods whose workers keep to their own samples.

A shard is a number, not a worker: any worker can compute on any shard, so a result depends on how
many shards there are and not on who holds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from psopt.data.errors import DataError
from psopt.data.plan import Rows
from psopt.data.split import Split

Cut = Literal["iid", "by_label"]
_STREAM = 0x5A4D  # apart from the streams of the epochs' permutations


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard ``index`` of ``of``.

    Attributes:
        cut: ``iid``: a seeded permutation of all rows, cut into parts of equal size; ``by_label``:
            the same, sorted by label first, so that a shard sees few of the classes. Within a shard
            rows are in the order of the permutation: its batches, and a part of it, are like the shard.
        seed: of the permutation.

    Raises:
        ValueError: there is no such shard.
    """

    index: int
    of: int
    cut: Cut
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.of:
            raise ValueError(f"shard {self.index} is not one of {self.of}: they count from 0")
        if self.seed < 0:
            raise ValueError(f"shard: seed must be at least 0, not {self.seed}")

    def count(self, samples: int) -> int:
        """Rows of this shard of a set of ``samples`` rows; sizes differ by at most one."""
        return samples * (self.index + 1) // self.of - samples * self.index // self.of

    def rows(self, train: Split) -> Rows:
        """Row numbers, (count,) int64, read-only.

        Raises:
            ValueError: there are fewer rows than shards.
            DataError: ``by_label``, and the rows have targets instead of labels.
        """
        samples = len(train)
        if samples < self.of:
            raise ValueError(f"{samples} samples cannot be cut into {self.of} shards")
        order = _order(self.seed, samples)
        first, end = (samples * i // self.of for i in (self.index, self.index + 1))
        if self.cut == "iid":
            return order[first:end]
        by_label = np.argsort(_labels(train)[order], kind="stable")
        rows = order[np.sort(by_label[first:end])]
        rows.flags.writeable = False
        return rows


def part_of(count: int, part: float) -> int:
    """Rows of the first ``part`` of ``count``: at least one, and not all of several where it is below 1."""
    most = count if part >= 1.0 else max(1, count - 1)
    return max(1, min(round(part * count), most))


def _labels(train: Split) -> Rows:
    if train.y.ndim != 1:
        raise DataError(
            "shards are cut by_label, but the data set has targets instead of class labels; cut: iid "
            "needs none"
        )
    return train.y.numpy()


@lru_cache(maxsize=2)
def _order(seed: int, samples: int) -> Rows:
    generator = np.random.Generator(
        np.random.PCG64(np.random.SeedSequence([seed, _STREAM, samples]))
    )
    order = generator.permutation(samples).astype(np.int64, copy=False)
    order.flags.writeable = False
    return order
