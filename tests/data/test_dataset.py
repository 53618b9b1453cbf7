"""Datasets: batches, normalisation, caching, limits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from psopt.data import DataError, open_dataset
from tests.data.conftest import Write

MOMENTS = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]}
PLENTY = 2**31


def expected(raw: Any, mean: Any, std: Any) -> Tensor:
    shape = (1, -1, 1, 1)
    x = torch.from_numpy(np.asarray(raw)).double() / 255
    return ((x - torch.tensor(mean).reshape(shape)) / torch.tensor(std).reshape(shape)).float()


@pytest.mark.parametrize("cache_bytes", [PLENTY, 0])
@pytest.mark.parametrize("moments", [MOMENTS, {"mean": 0.5, "std": 0.25}, {}])
def test_batch_is_normalised_in_the_order_asked_for(
    write: Write, cache_bytes: int, moments: dict[str, Any]
) -> None:
    path = write(moments)
    data = open_dataset(path, cache_bytes=cache_bytes)
    rows = np.array([7, 3, 29, 3, 0])
    x, y = data.train.batch(rows)
    with h5py.File(path) as file:
        raw = file["train/x"][()][rows]
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    assert y.tolist() == (rows % 3).tolist()
    want = expected(raw, moments.get("mean", [0.0]), moments.get("std", [1.0]))
    torch.testing.assert_close(x, want, rtol=1e-5, atol=1e-6)


def test_cached_and_read_rows_are_the_same_bits(write: Write) -> None:
    path = write(MOMENTS)
    cached = open_dataset(path, cache_bytes=PLENTY)
    read = open_dataset(path, cache_bytes=0)
    assert (cached.train.cached, read.train.cached) == (True, False)
    rows = np.array([5, 1, 1, 17])
    for get in ("batch", "range"):
        arguments = (rows,) if get == "batch" else (4, 9)
        for name in ("train", "test"):
            if get == "batch":
                arguments = (rows % 12,)
            a, b = (getattr(getattr(d, name), get)(*arguments) for d in (cached, read))
            assert torch.equal(a[0], b[0])
            assert torch.equal(a[1], b[1])


def test_fingerprint(write: Write) -> None:
    """Of the samples, wherever they are held; one changed pixel or label shows."""

    def of(path: Path, cache_bytes: int = PLENTY, limit: int | None = None) -> str:
        data = open_dataset(path, cache_bytes=cache_bytes, train_limit=limit)
        return data.train.fingerprint()

    first = of(write(MOMENTS))
    assert len(first) == 64
    assert of(write(MOMENTS), cache_bytes=0) == first
    assert of(write(MOMENTS), limit=29) != first
    with h5py.File(write(MOMENTS), "r") as file:
        x, y = file["train/x"][()], file["train/y"][()]
    x[7, 1, 2, 3] ^= 1
    y[4] = 2
    assert of(write(MOMENTS, train_x=x)) != first
    assert of(write(MOMENTS, train_y=y)) != first


@pytest.mark.parametrize("cache_bytes", [PLENTY, 0])
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_what_is_returned_is_the_callers_own(write: Write, cache_bytes: int, kind: str) -> None:
    path = write(MOMENTS)
    if kind == "float32":
        x = np.ones((30, 3, 4, 5), np.float32)
        path = write({}, train_x=x, test_x=x[:12])
    split = open_dataset(path, cache_bytes=cache_bytes).train
    before = [value.clone() for value in split.range(0, 30)]
    for x_, y_ in (split.range(0, 30), split.batch(np.arange(30))):
        x_.fill_(7)
        y_.fill_(7)
    after = split.range(0, 30)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_range_equals_batch_and_knows_its_bounds(write: Write) -> None:
    split = open_dataset(write(MOMENTS), cache_bytes=PLENTY).train
    assert torch.equal(split.range(4, 9)[0], split.batch(np.arange(4, 9))[0])
    assert split.range(5, 5)[0].shape == (0, 3, 4, 5)
    for first, last in ((-1, 3), (3, 2), (0, 31)):
        with pytest.raises(IndexError, match=r"not in 0\.\.29"):
            split.range(first, last)


@pytest.mark.parametrize("cache_bytes", [PLENTY, 0])
@pytest.mark.parametrize("row", [-1, 30])
def test_a_row_that_is_not_there(write: Write, cache_bytes: int, row: int) -> None:
    split = open_dataset(write(), cache_bytes=cache_bytes).train
    with pytest.raises(IndexError):
        split.batch(np.array([0, row]))


@pytest.mark.parametrize("cache_bytes", [PLENTY, 0])
def test_read_only_reversed_and_empty_rows(write: Write, cache_bytes: int) -> None:
    split = open_dataset(write(), cache_bytes=cache_bytes).train
    frozen = np.arange(4)
    frozen.flags.writeable = False
    assert torch.equal(split.batch(frozen)[0], split.batch(np.arange(4)[::-1])[0].flip(0))
    assert split.batch(np.array([], np.int64))[0].shape == (0, 3, 4, 5)


@pytest.mark.parametrize("cache_bytes", [PLENTY, 0])
def test_limits_use_the_first_rows(write: Write, cache_bytes: int) -> None:
    data = open_dataset(write(), cache_bytes=cache_bytes, train_limit=7, test_limit=99)
    assert (len(data.train), len(data.test)) == (7, 12)
    assert data.outputs == 3
    assert data.train.y.tolist() == [0, 1, 2, 0, 1, 2, 0]
    with pytest.raises(IndexError):
        data.train.batch(np.array([7]))


@pytest.mark.parametrize("limits", [{"train_limit": 0}, {"test_limit": -3}])
def test_a_limit_is_positive(write: Write, limits: dict[str, int]) -> None:
    with pytest.raises(DataError, match="_limit must be at least 1"):
        open_dataset(write(), cache_bytes=0, **limits)


def test_the_cache_is_bounded_and_lazy(write: Write) -> None:
    path = write()
    train_bytes = 30 * 3 * 4 * 5
    data = open_dataset(path, cache_bytes=train_bytes + 10)
    assert (data.train.cached, data.test.cached) == (True, False)
    assert data.train.nbytes == train_bytes
    data.train.batch(np.arange(3))
    path.unlink()  # in memory now, with the file closed
    data.train.batch(np.arange(3))
    with pytest.raises(DataError, match="no such dataset"):
        data.test.batch(np.arange(3))


def test_close_and_go_on(write: Write) -> None:
    data = open_dataset(write(), cache_bytes=0)
    x = data.train.range(0, 3)[0]
    data.close()
    assert torch.equal(data.train.range(0, 3)[0], x)


def test_not_normalised(write: Write) -> None:
    path = write(MOMENTS)
    x, _ = open_dataset(path, cache_bytes=PLENTY, normalise=False).train.batch(np.arange(30))
    with h5py.File(path) as file:
        assert torch.equal(x, torch.from_numpy(file["train/x"][()]).float())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
@pytest.mark.parametrize("cache_bytes", [PLENTY, 0])
def test_float_inputs(write: Write, dtype: str, cache_bytes: int) -> None:
    x = np.linspace(-2, 2, 30 * 4).reshape(30, 4).astype(dtype)
    path = write({"mean": [0.0, 1, 2, 3], "std": 2.0}, train_x=x, test_x=x[:12])
    got, _ = open_dataset(path, cache_bytes=cache_bytes).train.batch(np.arange(30))
    want = (torch.from_numpy(x.astype(np.float64)) - torch.arange(4)) / 2
    torch.testing.assert_close(got, want.float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("shape", "outputs"), [((30,), 1), ((30, 1), 1), ((30, 5), 5)])
def test_regression_targets_are_two_dimensional(
    write: Write, shape: tuple[int, ...], outputs: int
) -> None:
    y = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    data = open_dataset(write({}, train_y=y, test_y=y[:12]), cache_bytes=PLENTY)
    assert data.regression
    assert data.outputs == outputs
    assert data.classes is None
    batch = data.train.batch(np.array([2, 0]))[1]
    assert batch.dtype == torch.float32
    assert torch.equal(batch, torch.from_numpy(y[[2, 0]]).float().reshape(2, -1))


def test_classes_and_attributes(write: Write) -> None:
    names = ["cat", "dog", "Übung", "unused"]
    data = open_dataset(write({"classes": names, "source": "here"}), cache_bytes=0)
    assert data.classes == tuple(names)
    assert data.outputs == 4
    assert data.attributes["source"] == "here"
    assert data.input_shape == (3, 4, 5)
    assert data.describe().splitlines()[1:] == [
        "  train: 30 samples of 3x4x5 uint8, labels, 0.0 MiB read from the file",
        "  test: 12 samples of 3x4x5 uint8, labels, 0.0 MiB read from the file",
    ]


def test_batches_are_faster_than_any_model() -> None:
    """100,000 normalised digits a second are asked for; a batch must stay far from a model's time.

    Compared with a matrix product on the same batch rather than with the clock.
    """
    data = open_dataset("sample", cache_bytes=PLENTY)
    rows = np.random.default_rng(1).integers(0, 4000, (200, 64))
    weight = torch.randn(784, 256)

    def seconds(batches: bool) -> float:
        best = float("inf")
        x = data.train.batch(rows[0])[0].flatten(1)
        for _ in range(5):
            start = time.perf_counter()
            for row in rows:
                if batches:
                    data.train.batch(row)
                else:
                    x @ weight
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(batches=True) < 3 * seconds(batches=False)
