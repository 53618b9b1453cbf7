"""Some classes of a dataset: which rows, renumbered how, read how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from psopt.data import DataError, check, open_dataset, reader
from tests.data.conftest import Write

PLENTY = 2**31
LABELS = {"train/y": np.array([4, 0, 7, 7, 2, 4, 0, 4, 7, 2]), "test/y": np.array([7, 2, 4, 2])}
NAMES = [f"name {label}" for label in range(8)]


@pytest.fixture(params=[(PLENTY, 2**20), (0, 2**20), (PLENTY, 8), (0, 8)])
def cache_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """In memory and read from the file, in blocks of all rows and of two."""
    size, block = request.param
    monkeypatch.setattr(reader, "_BLOCK_BYTES", block)
    return int(size)


def make(path: Path, dtype: str = "uint8", **attributes: Any) -> Path:
    """Ten training and four test samples of 2 x 2; each of the four values is the row's number."""
    with h5py.File(path, "w") as file:
        for split, count in (("train", 10), ("test", 4)):
            rows = np.arange(count).reshape(-1, 1, 1)
            file.create_dataset(
                f"{split}/x", data=np.broadcast_to(rows, (count, 2, 2)).astype(dtype)
            )
            file.create_dataset(f"{split}/y", data=LABELS[f"{split}/y"])
        file.attrs.update(attributes)
    return path


def rows(split: Any, first: int, last: int) -> list[int]:
    x, _ = split.range(first, last)
    assert x.shape == (last - first, 2, 2)
    assert bool((x == x[:, :1, :1]).all())
    return [int(value) for value in x[:, 0, 0]]


@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_rows_and_labels(tmp_path: Path, cache_bytes: int, dtype: str) -> None:
    path = make(tmp_path / "set.h5", dtype, classes=NAMES)
    data = open_dataset(path, cache_bytes=cache_bytes, classes=[7, 4], normalise=False)
    assert data.train.cached == (cache_bytes > 0)
    assert data.outputs == 2
    assert data.classes == ("name 7", "name 4")
    assert (len(data.train), len(data.test)) == (6, 2)
    assert data.train.y.tolist() == [1, 0, 0, 1, 1, 0]
    assert data.test.y.tolist() == [0, 1]
    assert rows(data.train, 0, 6) == [0, 2, 3, 5, 7, 8]
    assert rows(data.train, 2, 5) == [3, 5, 7]
    assert rows(data.train, 3, 3) == []
    assert rows(data.test, 0, 2) == [0, 2]
    x, y = data.train.batch([5, 0, 0, 3])
    assert x[:, 0, 0].tolist() == [8, 0, 0, 5]
    assert x.dtype == torch.float32
    assert y.tolist() == [0, 1, 1, 1]
    assert y.dtype == torch.int64
    for wrong in (-1, 6):
        with pytest.raises(IndexError):
            data.train.batch([wrong])


@pytest.mark.parametrize(
    ("classes", "labels"),
    [([4, 7], [0, 1, 1, 0, 0, 1]), ([7, 2, 4], [2, 0, 0, 1, 2, 2, 0, 1])],
)
def test_the_order_given_numbers_them(
    tmp_path: Path, classes: Sequence[int], labels: list[int]
) -> None:
    data = open_dataset(make(tmp_path / "set.h5"), cache_bytes=PLENTY, classes=classes)
    assert data.train.y.tolist() == labels
    assert data.outputs == len(classes)
    assert data.classes is None


def test_limits_count_the_chosen_rows(tmp_path: Path, cache_bytes: int) -> None:
    data = open_dataset(
        make(tmp_path / "set.h5"),
        cache_bytes=cache_bytes,
        classes=[4, 7],
        train_limit=3,
        test_limit=99,
        normalise=False,
    )
    assert (len(data.train), len(data.test)) == (3, 2)
    assert rows(data.train, 0, 3) == [0, 2, 3]
    with pytest.raises(IndexError):
        data.train.batch([3])
    with pytest.raises(IndexError):
        data.train.range(0, 4)


def test_only_chosen_rows_are_held(tmp_path: Path) -> None:
    """Six of ten training samples and two of four test samples of four bytes fit into 32."""
    path = make(tmp_path / "set.h5")
    data = open_dataset(path, cache_bytes=32, classes=[4, 7])
    assert (data.train.cached, data.test.cached) == (True, True)
    assert (data.train.nbytes, data.test.nbytes) == (24, 8)
    whole = open_dataset(path, cache_bytes=32)
    assert (whole.train.cached, whole.test.cached) == (False, True)


def test_normalised_as_all_classes_are(write: Write, cache_bytes: int) -> None:
    path = write({"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]})
    data = open_dataset(path, cache_bytes=cache_bytes, classes=[2, 0])
    whole = open_dataset(path, cache_bytes=PLENTY)
    kept = [row for row in range(30) if row % 3 != 1]
    assert torch.equal(data.train.range(0, 20)[0], whole.train.batch(kept)[0])
    assert torch.equal(data.train.batch([19, 4])[0], whole.train.batch([29, 6])[0])


def test_a_class_that_does_not_occur(tmp_path: Path) -> None:
    path = make(tmp_path / "set.h5")
    for classes in ([4, 5], [9, 4], [2**63 - 1, 4]):
        missing = next(label for label in classes if label != 4)
        message = f"no training sample has the label {missing}; those that occur are 0, 2, 4, 7"
        with pytest.raises(DataError, match=message):
            open_dataset(path, cache_bytes=0, classes=classes)


def test_test_samples_of_other_classes_only(write: Write) -> None:
    path = write({}, test_y=np.zeros(12, np.int64))
    with pytest.raises(DataError, match="no test sample has one of the labels 1, 2"):
        open_dataset(path, cache_bytes=0, classes=[1, 2])
    data = open_dataset(path, cache_bytes=0, classes=[1, 0])
    assert data.test.y.tolist() == [1] * 12


def test_regression_has_no_classes(write: Write) -> None:
    y = np.linspace(0, 1, 30)
    path = write({}, train_y=y, test_y=y[:12])
    with pytest.raises(DataError, match=r"set.h5: its y are regression targets.*data.classes"):
        open_dataset(path, cache_bytes=0, classes=[0, 1])


@pytest.mark.parametrize("size", [PLENTY, 0])
def test_a_bad_value_is_named_by_its_row_in_the_file(write: Write, size: int) -> None:
    x = np.zeros((30, 4), np.float32)
    x[4, 2] = x[5, 0] = np.nan
    path = write({}, train_x=x, test_x=x[:3], test_y=np.arange(3))
    with pytest.raises(DataError, match="/train/x row 5 holds NaN"):
        check(open_dataset(path, cache_bytes=size, classes=[2, 0]))


@pytest.mark.parametrize("size", [PLENTY, 0])
def test_a_file_that_became_shorter(write: Write, size: int) -> None:
    data = open_dataset(write(), cache_bytes=size, classes=[2, 0])
    shorter = np.zeros((20, 3, 4, 5), np.uint8)
    write({}, train_x=shorter, train_y=np.arange(20) % 3)
    with pytest.raises((DataError, IndexError)):
        data.train.range(0, 20)
