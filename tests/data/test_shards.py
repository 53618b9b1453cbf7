from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from psopt.data import DataError
from psopt.data.plan import BatchPlan
from psopt.data.shards import Cut, Shard


@dataclass
class Labelled:
    """A split, as far as shards look at it."""

    y: torch.Tensor

    def __len__(self) -> int:
        return len(self.y)


def labelled(samples: int, classes: int = 4) -> Any:
    generator = torch.Generator().manual_seed(5)
    return Labelled(torch.randint(classes, (samples,), generator=generator))


def cut_into(of: int, train: Any, cut: Cut = "iid", seed: int = 3) -> list[Any]:
    return [Shard(k, of, cut, seed).rows(train) for k in range(of)]


@pytest.mark.parametrize("cut", ["iid", "by_label"])
@pytest.mark.parametrize(
    ("samples", "of"), [(1, 1), (7, 7), (100, 1), (101, 8), (64, 16), (97, 96)]
)
def test_shards_partition_the_rows(samples: int, of: int, cut: Cut) -> None:
    train = labelled(samples)
    parts = cut_into(of, train, cut)
    assert sorted(np.concatenate(parts).tolist()) == list(range(samples))
    sizes = [len(rows) for rows in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == [Shard(k, of, cut, 3).count(samples) for k in range(of)]
    assert all(rows.dtype == np.int64 and not rows.flags.writeable for rows in parts)


def test_a_shard_is_a_pure_function() -> None:
    """Of seed, number and cut: not of what was asked before, and not of the order of the rows' labels."""
    train, other = labelled(50), Labelled(torch.zeros(50, dtype=torch.int64))
    first = [rows.copy() for rows in cut_into(4, train)]
    cut_into(5, labelled(31), seed=8)
    cut_into(4, train, "by_label")
    for again in (cut_into(4, train), cut_into(4, other)):
        for one, two in zip(first, again, strict=True):
            assert np.array_equal(one, two)


def test_seeds_differ_and_epochs_are_another_stream() -> None:
    train = labelled(50)
    assert not np.array_equal(cut_into(1, train, seed=1)[0], cut_into(1, train, seed=2)[0])
    for epoch in range(3):
        assert not np.array_equal(
            cut_into(1, train, seed=1)[0], BatchPlan(1, epoch, 50, 50).rows(0)
        )


def test_iid_shards_see_all_classes_and_shards_by_label_few() -> None:
    train = labelled(400, classes=10)
    mixed = [len(np.unique(train.y.numpy()[rows])) for rows in cut_into(10, train)]
    skewed = [len(np.unique(train.y.numpy()[rows])) for rows in cut_into(10, train, "by_label")]
    assert min(mixed) >= 9
    assert max(skewed) <= 3
    assert sum(skewed) <= 2 * 10 - 1  # a cut within a class divides it in two


def test_by_label_keeps_the_seeded_order_within_a_shard() -> None:
    """The cut is between rows sorted by label; a part of a shard, or a batch, has the labels of the whole."""
    train = labelled(60, classes=3)
    (whole,), labels = cut_into(1, train), train.y.numpy()
    by_label = np.concatenate([whole[labels[whole] == label] for label in range(3)])
    for k, rows in enumerate(cut_into(4, train, "by_label")):
        assert set(rows) == set(by_label[15 * k : 15 * k + 15])
        assert np.array_equal(rows, [row for row in whole if row in set(rows)])
    (halves, _) = cut_into(2, labelled(4000, classes=8), "by_label")
    first = labelled(4000, classes=8).y.numpy()[halves[:400]]
    assert np.bincount(first, minlength=4)[:4].min() >= 70


def test_a_shard_that_is_not_there() -> None:
    for index, of in ((-1, 3), (3, 3), (0, 0)):
        with pytest.raises(ValueError, match=f"shard {index} is not one of {of}"):
            Shard(index, of, "iid", 1)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        Shard(0, 1, "iid", -1)


def test_more_shards_than_samples() -> None:
    with pytest.raises(ValueError, match="5 samples cannot be cut into 6 shards"):
        Shard(0, 6, "iid", 1).rows(labelled(5))


def test_targets_have_no_labels() -> None:
    train: Any = Labelled(torch.zeros(6, 1))
    assert len(Shard(0, 2, "iid", 1).rows(train)) == 3
    with pytest.raises(DataError, match=r"by_label.*targets instead of class labels; cut: iid"):
        Shard(0, 2, "by_label", 1).rows(train)
