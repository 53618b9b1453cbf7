"""CIFAR-10 and CIFAR-100, binary version: a byte (or two) of label, then 3x32x32 bytes of image."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from psopt.data.errors import DataError
from psopt.data.importers.table import Imported, Part
from psopt.reading import open_regular, read_within

_IMAGE = (3, 32, 32)
_IMAGE_BYTES = 3 * 32 * 32
_MOST_NAMES = 2**16  # bytes of a file of class names


def read_cifar(source: Path, *, labels: Literal["fine", "coarse"] = "fine") -> Imported:
    """Reads the directory that the binary archive unpacks to; it shows which of the two.

    Args:
        source: holds data_batch_1.bin ... data_batch_5.bin and test_batch.bin (CIFAR-10), or
            train.bin and test.bin (CIFAR-100), each with its files of class names.
        labels: of CIFAR-100: the 100 fine classes or the 20 coarse ones.

    Raises:
        DataError: a file is missing, truncated, or has a label out of range.
    """
    if labels not in ("fine", "coarse"):
        raise DataError(f'{source}: labels must be "fine" or "coarse", not {labels!r}')
    if (source / "train.bin").exists():
        names = _names(source / f"{labels}_label_names.txt", 100 if labels == "fine" else 20)
        column, columns = int(labels == "fine"), 2
        train, test = [source / "train.bin"], source / "test.bin"
        title = f"CIFAR-100, {labels} labels"
    else:
        if (source / "batches.meta").exists() or (source / "meta").exists():
            raise DataError(f"{source}: is the Python version; fetch the binary version")
        names = _names(source / "batches.meta.txt", 10)
        column, columns = 0, 1
        train = [source / f"data_batch_{number}.bin" for number in range(1, 6)]
        test, title = source / "test_batch.bin", "CIFAR-10"
    parts = [_read(path, columns, column, len(names)) for path in train]
    x = np.concatenate([part_x for part_x, _ in parts])
    y = np.concatenate([part_y for _, part_y in parts])
    return Imported(
        train=Part(x, y),
        test=Part(*_read(test, columns, column, len(names))),
        classes=names,
        source=f"{title}, binary version, A. Krizhevsky",
    )


def _read(
    path: Path, columns: int, column: int, classes: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    try:
        with open_regular(path) as stream:
            values = np.fromfile(stream, np.uint8)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}; fetch the binary version") from error
    record = columns + _IMAGE_BYTES
    if values.size == 0 or values.size % record:
        raise DataError(
            f"{path}: {values.size} bytes are not a whole number of {record}-byte records; the "
            "file is truncated, or not the binary version"
        )
    table = values.reshape(-1, record)
    y = table[:, column].astype(np.int64)
    if y.max() >= classes:
        row = int(np.argmax(y))
        raise DataError(f"{path}: record {row} has label {y[row]}, expected 0..{classes - 1}")
    return table[:, columns:].reshape(-1, *_IMAGE), y


def _names(path: Path, count: int) -> tuple[str, ...]:
    try:
        names = read_within(path, _MOST_NAMES).decode().split()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}; it names the classes") from error
    if len(names) != count:
        raise DataError(f"{path}: holds {len(names)} class names, expected {count}")
    return tuple(names)
