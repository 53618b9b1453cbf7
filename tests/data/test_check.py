"""Values that cannot be trained on are found before training starts."""

from __future__ import annotations

import numpy as np
import pytest

from psopt.data import DataError, Dataset, check, open_dataset
from tests.data.conftest import Write

PLENTY = 2**31
LABELS = np.arange(30) % 3


def nan_set(write: Write, cache_bytes: int, name: str, row: int, value: float) -> Dataset:
    arrays = {
        "train_x": np.zeros((5000, 64), np.float32),
        "train_y": np.zeros(5000),
        "test_x": np.zeros((9, 64), np.float32),
        "test_y": np.zeros(9),
    }
    arrays[name][row] = value
    return open_dataset(write({}, **arrays), cache_bytes=cache_bytes)


@pytest.mark.parametrize("cache_bytes", [PLENTY, 0])
@pytest.mark.parametrize(
    ("name", "row", "value", "found"),
    [
        ("train_x", 4321, np.nan, "NaN"),
        ("train_x", 4999, -np.inf, "an infinite value"),
        ("test_x", 0, np.inf, "an infinite value"),
        ("train_y", 17, np.nan, "NaN"),
        ("test_y", 8, np.inf, "an infinite value"),
    ],
)
def test_nan_and_infinity_are_found_before_training(
    write: Write, cache_bytes: int, name: str, row: int, value: float, found: str
) -> None:
    data = nan_set(write, cache_bytes, name, row, value)
    with pytest.raises(DataError, match=f"/{name.replace('_', '/')} row {row} holds {found}"):
        check(data)


def test_of_a_large_set_the_first_and_last_rows_are_looked_at(write: Write) -> None:
    rows, width = 70, 2**18  # a row is the scan's window of 1 MiB
    for row in (0, rows - 1):
        x = np.zeros((rows, width), np.float32)
        x[row, 5] = np.nan
        path = write({}, train_x=x, train_y=np.zeros(rows), test_x=x[1:2], test_y=np.zeros(1))
        with pytest.raises(DataError, match=f"/train/x row {row} holds NaN"):
            check(open_dataset(path, cache_bytes=0))


def test_float64_beyond_float32_is_infinite(write: Write) -> None:
    x = np.zeros((30, 4))
    x[3] = 1e300
    y = np.where(np.arange(30) == 5, 1e300, 0.0)
    data = open_dataset(write({}, train_x=x, test_x=x[:2], test_y=LABELS[:2]), cache_bytes=PLENTY)
    with pytest.raises(DataError, match="/train/x row 3 holds an infinite value"):
        check(data)
    data = open_dataset(write({}, train_y=y, test_y=y[:12]), cache_bytes=PLENTY)
    with pytest.raises(DataError, match="/train/y row 5 holds an infinite value"):
        check(data)


def test_the_models_outputs_must_fit(write: Write) -> None:
    data = open_dataset(write(), cache_bytes=PLENTY)
    check(data)
    check(data, 3)
    check(data, 10)
    with pytest.raises(
        DataError, match=r"train/y row 2: label 2 is out of range for the model's 2"
    ):
        check(data, 2)
    y = np.zeros((30, 2))
    data = open_dataset(write({}, train_y=y, test_y=y[:12]), cache_bytes=PLENTY)
    check(data, 2)
    with pytest.raises(DataError, match="width 2, the model gives 3 outputs"):
        check(data, 3)
