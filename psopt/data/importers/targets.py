"""What several importers need: class labels from whatever stands for them, and a test share."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from psopt.data.errors import DataError

Target = Literal["auto", "classes", "values"]
DEFAULT_TEST_FRACTION = 0.2


def encode(
    train: npt.NDArray[Any], test: npt.NDArray[Any], target: Target, where: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], tuple[str, ...] | None]:
    """(train y, test y, class names) from the y of both splits.

    Args:
        train: numbers, booleans or texts, (samples,) or (samples, width).
        test: the same of the test split.
        target: "classes", "values" for regression, or "auto": values if any is not whole, or if
            there are several a sample.
        where: the file, for messages.

    Returns:
        Labels (samples,) int64 with class names; or targets float32 and None. Labels that are not
        numbered 0, 1, 2, ... are numbered in their order, and the names say what they were.

    Raises:
        DataError: the target is unknown, or y do not fit it.
    """
    if target not in ("auto", "classes", "values"):
        raise DataError(f'{where}: target must be "auto", "classes" or "values", not {target!r}')
    train, test = (y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y for y in (train, test))
    if train.dtype.kind not in "biufSU" or test.dtype.kind != train.dtype.kind:
        raise DataError(
            f"{where}: y is {train.dtype} (train) and {test.dtype} (test); expected numbers "
            "or texts"
        )
    if train.dtype.kind == "f":
        for y in (train, test):
            if not np.isfinite(y).all():
                row = int(np.argmin(np.isfinite(y.reshape(len(y), -1)).all(axis=1)))
                raise DataError(f"{where}: y of sample {row} is NaN or infinite")
    if target == "values" or (target == "auto" and not _look_like_labels(train, test)):
        if train.dtype.kind in "SU":
            raise DataError(f"{where}: y are texts; they can only be classes")
        return train.astype(np.float32), test.astype(np.float32), None
    if train.ndim != 1 or test.ndim != 1:
        raise DataError(f"{where}: y has shape {train.shape}; classes are one label a sample")
    return _number(train, test)


def _look_like_labels(train: npt.NDArray[Any], test: npt.NDArray[Any]) -> bool:
    if train.ndim != 1:
        return False
    if train.dtype.kind != "f":
        return True
    return all(bool((y == np.round(y)).all()) for y in (train, test))


def _number(
    train: npt.NDArray[Any], test: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], tuple[str, ...]]:
    values, labels = np.unique(np.concatenate([train, test]), return_inverse=True)
    labels = labels.astype(np.int64)
    if values.dtype.kind == "f":
        values = values.astype(np.int64) if (values == np.round(values)).all() else values
    names = tuple(v.decode() if isinstance(v, bytes) else str(v) for v in values.tolist())
    return labels[: len(train)], labels[len(train) :], names


def choose_test_rows(
    count: int, fraction: float | None, seed: int, where: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(train rows, test rows) of a set without a test set of its own: a seeded choice, rising.

    Raises:
        DataError: the fraction is not in (0, 1), or there are fewer than 2 samples.
    """
    fraction = DEFAULT_TEST_FRACTION if fraction is None else fraction
    if not 0 < fraction < 1:
        raise DataError(f"{where}: the test fraction must be in (0, 1), not {fraction}")
    if count < 2:
        raise DataError(f"{where}: {count} samples cannot be split into train and test")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(count).astype(np.int64)
    tests = min(max(1, round(count * fraction)), count - 1)
    return np.sort(order[tests:]), np.sort(order[:tests])
