"""What an importer returns, and writing it as a dataset."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np
import numpy.typing as npt

from psopt import __version__
from psopt.data.errors import DataError

_WINDOW_BYTES = 32 * 2**20


class RowSource(Protocol):
    """Rows that are read in windows: a numpy array, or a reader of files.

    `shape` is (samples, *shape of a sample); indexing with a slice gives those rows.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """(samples, *shape of a sample)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint8 or float32."""

    def __getitem__(self, rows: slice, /) -> npt.NDArray[Any]: ...


@dataclass(frozen=True, slots=True)
class Part:
    """One split: x rows, and y as (samples,) integer labels or float targets."""

    x: RowSource
    y: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Imported:
    """A dataset as an importer read it; `mean` and `std` are found while it is written.

    Args:
        train: the training samples.
        test: the test samples.
        classes: the class names, None for regression.
        source: where the data are from, in words.
        licence: their licence, in words; empty if unknown.
    """

    train: Part
    test: Part
    classes: tuple[str, ...] | None
    source: str
    licence: str = ""


def write_dataset(data: Imported, out: Path, *, compress: bool = False) -> Path:
    """Writes the dataset, under a temporary name first: `out` is whole or absent.

    Args:
        data: what to write.
        out: the file to make; its directory must exist.
        compress: gzip x, for a small set to ship; reading rows out of order is then slow.

    Returns:
        `out`.

    Raises:
        DataError: `out` exists, its directory does not, the set is empty or unfit, or the disk is
            full.
    """
    if out.exists():
        raise DataError(f"{out}: exists; remove it first, or name another file")
    if not out.parent.is_dir():
        raise DataError(f"{out.parent}: no such directory; make it first")
    _check_shapes(data)
    if not compress:
        _check_room(data, out)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        # Attributes above 64 KiB, as the mean of many features, need the format of HDF5 1.8.
        with h5py.File(temporary, "x", libver=("v108", "v110")) as file:
            _fill(file, data, compress=compress)
        _sync(temporary)
        temporary.replace(out)
    except OSError as error:
        raise DataError(f"{out}: cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return out


def _check_shapes(data: Imported) -> None:
    for name, part in (("train", data.train), ("test", data.test)):
        if part.x.shape[0] == 0:
            raise DataError(f"{data.source}: no {name} samples")
        if part.x.shape[0] != len(part.y):
            raise DataError(f"{data.source}: {part.x.shape[0]} {name} x but {len(part.y)} y")
    if data.train.x.shape[1:] != data.test.x.shape[1:]:
        raise DataError(
            f"{data.source}: train samples are {data.train.x.shape[1:]}, test samples "
            f"{data.test.x.shape[1:]}; they must be alike"
        )


def _check_room(data: Imported, out: Path) -> None:
    """A small sparse file may stand for a dense set larger than any disk."""
    size = sum(math.prod(part.x.shape) * part.x.dtype.itemsize for part in (data.train, data.test))
    free = shutil.disk_usage(out.parent).free
    if size > free:
        raise DataError(f"{out}: takes {size} bytes, and its disk has {free} left")


def _fill(file: h5py.File, data: Imported, *, compress: bool) -> None:
    moments = _Moments()
    for name, part in (("train", data.train), ("test", data.test)):
        x = _create(file, f"{name}/x", part.x, compress=compress)
        for first, last in windows(part.x):
            block = part.x[first:last]
            _check_finite(block, f"{data.source}: {name} x", first)
            x[first:last] = block
            if name == "train":
                moments.add(block)
        y = part.y.astype(np.int64 if part.y.dtype.kind in "iu" else np.float32)
        file.create_dataset(f"{name}/y", data=y)
    file.attrs["mean"], file.attrs["std"] = moments.result(part.x.dtype)
    if data.classes is not None:
        file.attrs["classes"] = list(data.classes)
    file.attrs["source"], file.attrs["licence"] = data.source, data.licence
    file.attrs["created_by"] = f"psopt {__version__}"


def _check_finite(block: npt.NDArray[Any], where: str, first: int) -> None:
    finite = np.isfinite(block).reshape(len(block), -1).all(axis=1)
    if not finite.all():
        raise DataError(f"{where}: sample {first + int(np.argmin(finite))} has NaN or infinity")


def _create(file: h5py.File, name: str, x: RowSource, *, compress: bool) -> h5py.Dataset:
    if not compress:  # contiguous: a row is one read
        return file.create_dataset(name, x.shape, x.dtype)
    chunk = (min(x.shape[0], 1000), *x.shape[1:])
    options = {"chunks": chunk, "compression": "gzip", "compression_opts": 9, "shuffle": True}
    return file.create_dataset(name, x.shape, x.dtype, **options)


def windows(x: RowSource) -> Iterator[tuple[int, int]]:
    """(first, last) of windows of about 32 MiB that cover all rows."""
    size = max(1, _WINDOW_BYTES // max(1, math.prod(x.shape[1:]) * 8))
    for first in range(0, x.shape[0], size):
        yield first, min(first + size, x.shape[0])


class _Moments:
    """Mean and deviation of each channel (axis 1), gathered in float64 about a first guess."""

    def __init__(self) -> None:
        self._count = 0
        self._guess: npt.NDArray[np.float64] | None = None
        self._sum: npt.NDArray[np.float64] | float = 0.0
        self._squares: npt.NDArray[np.float64] | float = 0.0

    def add(self, block: npt.NDArray[Any]) -> None:
        values = np.moveaxis(block, 1, 0).reshape(block.shape[1], -1).astype(np.float64)
        if self._guess is None:  # sums about it do not cancel, however far from 0 the data lie
            self._guess = values.mean(axis=1)
        values -= self._guess[:, None]
        self._count += values.shape[1]
        self._sum = self._sum + values.sum(axis=1)
        self._squares = self._squares + (values * values).sum(axis=1)

    def result(self, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """(mean, std), each (channels,), in the units of x after uint8 is scaled to [0, 1]."""
        assert self._guess is not None
        offset = np.asarray(self._sum) / self._count
        mean = self._guess + offset
        std = np.sqrt(np.maximum(np.asarray(self._squares) / self._count - offset**2, 0))
        unit = 255.0 if dtype == np.uint8 else 1.0
        constant = std <= 1e-7 * np.abs(mean)  # what does not vary is centred, not blown up
        return mean / unit, np.where(constant, 1.0, std / unit)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
