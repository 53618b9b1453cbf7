"""A dataset: two splits of one kind, opened from an HDF5 file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psopt.data.check import check
from psopt.data.classes import choose_classes
from psopt.data.errors import DataError
from psopt.data.layout import Table, open_file, read_attributes, read_table, resolve
from psopt.data.split import Split

__all__ = ["Dataset", "Split", "check", "open_dataset"]

_UNNAMED_CLASSES = 100_000  # labels beyond this, without class names, are more likely a misread y


class Dataset:
    """A training and a test split of one kind. Made by `open_dataset`.

    Attributes:
        path: the HDF5 file.
        train: the training samples.
        test: the test samples.
        attributes: the file's root attributes; `classes` among them names the chosen ones only.
        outputs: the number of classes, or the width of the regression targets.
        classes: the class names; None when the file has none, or for regression.
        input_shape: of one sample.
    """

    def __init__(
        self, path: Path, train: Split, test: Split, attributes: dict[str, Any], outputs: int
    ) -> None:
        self.path, self.train, self.test = path, train, test
        self.attributes, self.outputs = attributes, outputs
        self.classes: tuple[str, ...] | None = None
        if not self.regression:
            self.classes = attributes.get("classes")
        self.input_shape = train.input_shape

    @property
    def regression(self) -> bool:
        """True when y are float targets, False when they are class labels."""
        return self.train.y.ndim == 2

    def describe(self) -> str:
        """Three lines for logs: the file and what it is for, then each split."""
        kind = "regression" if self.regression else "classification"
        unit = "values" if self.regression else "classes"
        head = f"{self.path}: {kind}, {self.outputs} {unit}"
        return "\n".join([head, f"  {self.train.describe()}", f"  {self.test.describe()}"])

    def close(self) -> None:
        """Frees the caches and closes the file."""
        self.train.close()
        self.test.close()


def open_dataset(
    path: str | Path,
    *,
    cache_bytes: int,
    classes: Sequence[int] | None = None,
    train_limit: int | None = None,
    test_limit: int | None = None,
    normalise: bool = True,
) -> Dataset:
    """Opens a dataset, checking its structure and labels; `check` looks at the values of x too.

    Args:
        path: an HDF5 file (layout: `psopt.data.layout`), or "sample" for the packaged digits.
        cache_bytes: the most memory, in bytes, to hold x of both splits in.
        classes: use the samples of these labels only, in both splits; the first label becomes 0,
            the next 1, and so on. None for all.
        train_limit: use the first rows of the training set only (of the chosen classes), >= 1; None
            for all.
        test_limit: the same of the test set.
        normalise: scale uint8 x to [0, 1], then subtract `mean` and divide by `std` of the file.
            False only turns x into float32.

    Raises:
        DataError: the file is missing, locked, damaged, or not a dataset; the message says which.
    """
    path = resolve(path)
    for name, limit in (("train_limit", train_limit), ("test_limit", test_limit)):
        if limit is not None and limit < 1:
            raise DataError(f"{name} must be at least 1, not {limit}")
    with open_file(path) as file:
        train, test = read_table(file, "train"), read_table(file, "test")
        attributes = read_attributes(file)
    _check_alike(path, train, test)
    names = attributes.get("classes")
    outputs = _outputs(path, train, test, names)
    if classes is not None:
        train, test = choose_classes(path, train, test, classes)
        outputs = len(classes)
        if names:
            attributes["classes"] = tuple(names[label] for label in classes)
    affine = _affine(path, train, attributes) if normalise else None
    splits = []
    for table, limit in ((train, train_limit), (test, test_limit)):
        rows = table.rows if limit is None else min(limit, table.rows)
        size = rows * math.prod(table.shape) * table.held.itemsize
        cached = size <= cache_bytes
        cache_bytes -= size if cached else 0
        splits.append(Split(path, table, rows, cached=cached, affine=affine))
    return Dataset(path, splits[0], splits[1], attributes, outputs)


def _check_alike(path: Path, train: Table, test: Table) -> None:
    if train.shape != test.shape or train.held != test.held:
        raise DataError(
            f"{path}: train samples are {train.shape} {train.stored}, test samples {test.shape} "
            f"{test.stored}; they must be alike"
        )
    if train.y.shape[1:] != test.y.shape[1:]:
        raise DataError(
            f"{path}: train/y is {train.y.dtype} {train.y.shape}, test/y {test.y.dtype} "
            f"{test.y.shape}; both must be labels, or targets of one width"
        )


def _outputs(path: Path, train: Table, test: Table, classes: tuple[str, ...] | None) -> int:
    """The number of classes, every label being in range; or the width of the targets."""
    if train.y.ndim == 2:
        return int(train.y.shape[1])
    outputs = len(classes) if classes else int(train.y.max()) + 1
    if outputs > _UNNAMED_CLASSES and not classes:
        raise DataError(
            f"{path}: train/y has the label {outputs - 1}; store regression targets as floats, or "
            "give the attribute classes"
        )
    for table in (train, test):
        wrong = np.flatnonzero((table.y < 0) | (table.y >= outputs))
        if wrong.size:
            raise DataError(
                f"{path}: {table.name}/y row {wrong[0]}: label {table.y[wrong[0]]} is out of range "
                f"0..{outputs - 1} ({wrong.size} such rows); number the classes from 0, and name "
                "all of them in the attribute classes"
            )
    return outputs


def _affine(path: Path, table: Table, attributes: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    """(scale, shift) with x * scale + shift = (x / unit - mean) / std; None where that is x."""
    unit = 255.0 if table.stored == np.uint8 else 1.0
    if unit == 1.0 and not attributes.keys() & {"mean", "std"}:
        return None
    mean = _moment(path, table, "mean", attributes.get("mean", 0.0))
    std = _moment(path, table, "std", attributes.get("std", 1.0))
    if (std <= 0).any():
        raise DataError(f"{path}: attribute std must be positive, it is {std}")
    shape = (1, -1) + (1,) * (len(table.shape) - 1)
    return (1 / (std * unit)).reshape(shape).float(), (-mean / std).reshape(shape).float()


def _moment(path: Path, table: Table, name: str, value: Any) -> Tensor:
    """The attribute as float64, (1,) or (channels,)."""
    try:
        array = np.array(value, dtype=np.float64, ndmin=1)
    except (TypeError, ValueError):
        raise DataError(f"{path}: attribute {name}: expected numbers") from None
    if array.shape not in ((1,), (table.shape[0],)):
        raise DataError(
            f"{path}: attribute {name} has shape {array.shape}; expected a scalar, or one value "
            f"for each of the {table.shape[0]} channels"
        )
    if not np.isfinite(array).all():
        raise DataError(f"{path}: attribute {name} must be finite, it is {array}")
    return torch.from_numpy(array)
