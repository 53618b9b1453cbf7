"""Looking at the values of a dataset before training starts on it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from psopt.data.errors import DataError
from psopt.data.split import Split

if TYPE_CHECKING:
    from psopt.data.dataset import Dataset

_WINDOW_BYTES = 2**20
_WINDOWS = 64


def check(dataset: Dataset, model_outputs: int | None = None) -> None:
    """Raises one clear error if the values cannot be trained on.

    A split in memory is looked through; of one read from the file, 64 evenly spread windows are.

    Args:
        dataset: an open dataset.
        model_outputs: width of the model's output, when it is known.

    Raises:
        DataError: a value of x or y is NaN or infinite, or the model's outputs do not fit y.
    """
    if model_outputs is not None:
        _check_outputs(dataset, model_outputs)
    for split in (dataset.train, dataset.test):
        _check_targets(split)
        if split.raw_dtype.kind == "f":
            _check_inputs(split)


def _check_outputs(dataset: Dataset, model_outputs: int) -> None:
    if dataset.regression:
        if model_outputs != dataset.outputs:
            raise DataError(
                f"{dataset.path}: the targets have width {dataset.outputs}, the model gives "
                f"{model_outputs} outputs; build it with outputs={dataset.outputs}"
            )
        return
    for split in (dataset.train, dataset.test):
        largest = int(split.y.max())
        if largest >= model_outputs:
            row = int(torch.argmax(split.y))
            raise DataError(
                f"{dataset.path}: {split.name}/y row {row}: label {largest} is out of range for "
                f"the model's {model_outputs} outputs; build it with outputs={dataset.outputs}"
            )


def _check_targets(split: Split) -> None:
    if split.y.is_floating_point():
        _refuse(split, "y", split.y, first=0)


def _check_inputs(split: Split) -> None:
    size = max(1, _WINDOW_BYTES // (math.prod(split.input_shape) * split.raw_dtype.itemsize))
    for first, last in _windows(len(split), size, every=split.cached):
        _refuse(split, "x", split.raw(first, last), first)


def _windows(rows: int, size: int, *, every: bool) -> Iterator[tuple[int, int]]:
    """(first, last) of all windows of `size` rows, or of 64 of them from first to last row."""
    count = -(-rows // size)
    if every or count <= _WINDOWS:
        starts = [number * size for number in range(count)]
    else:
        starts = [number * (rows - size) // (_WINDOWS - 1) for number in range(_WINDOWS)]
    for first in starts:
        yield first, min(first + size, rows)


def _refuse(split: Split, name: str, values: torch.Tensor, first: int) -> None:
    finite = torch.isfinite(values.flatten(1)).all(dim=1)
    if not finite.all():
        row = int(torch.argmin(finite.to(torch.uint8)))
        found = "NaN" if values[row].isnan().any() else "an infinite value"
        raise DataError(
            f"{split.path}: /{split.name}/{name} row {split.file_row(first + row)} holds {found}; remove such rows "
            "or replace their values, and import again"
        )
