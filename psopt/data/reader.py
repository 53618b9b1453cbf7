"""Where the raw x of a split come from: memory, or the HDF5 file.

A split may use some rows of the file only, its chosen ones (`data.classes`). Row numbers here are
those of the split; the readers know which rows of the file they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from psopt.data.errors import DataError

Rows = npt.NDArray[np.int64]

_BLOCK_BYTES = 4 * 2**20


class Reader(Protocol):
    """The raw x of a split: uint8 or float32, always a new tensor from `take`."""

    def take(self, rows: Rows) -> Tensor:
        """The samples of the rows, in that order; rows may repeat."""

    def window(self, first: int, last: int) -> Tensor:
        """The samples of rows first..last-1."""


class Cached:
    """All rows, in memory."""

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def take(self, rows: Rows) -> Tensor:
        """Copies of the rows."""
        return self._x.index_select(0, torch.from_numpy(rows))

    def window(self, first: int, last: int) -> Tensor:
        """The rows themselves, not a copy."""
        return self._x[first:last]


class Windowed:
    """Rows read from the file when they are asked for.

    Args:
        x: the array of the file.
        dtype: uint8 or float32.
        rows: rows of the split, the first ones of the file or of the chosen ones.
        chosen: which rows of the file they are, rising; None for the first ones.
    """

    def __init__(
        self, x: h5py.Dataset, dtype: np.dtype[Any], rows: int, chosen: Rows | None
    ) -> None:
        self._x, self._dtype, self._rows, self._chosen = x, dtype, rows, chosen

    def take(self, rows: Rows) -> Tensor:
        """Reads the rows one by one.

        Raises:
            IndexError: a row is not in the split.
            DataError: the file is unreadable.
        """
        # HDF5 selects rising, distinct rows only: read those, then put them in the order asked for.
        distinct, order = np.unique(rows, return_inverse=True)
        if distinct.size and not 0 <= distinct[0] <= distinct[-1] < self._rows:
            raise IndexError(f"rows {distinct[0]}..{distinct[-1]} are not in 0..{self._rows - 1}")
        places = distinct if self._chosen is None else self._chosen[distinct]
        return torch.from_numpy(self._read(places)[order])

    def window(self, first: int, last: int) -> Tensor:
        """Reads the rows, with what lies between them.

        Raises:
            DataError: the file is unreadable.
        """
        if self._chosen is None:
            return torch.from_numpy(self._read(slice(first, last)))
        values = np.empty((last - first, *self._x.shape[1:]), self._dtype)
        with self._telling():
            read_chosen(self._x, self._chosen[first:last], values)
        return torch.from_numpy(values)

    def _read(self, selection: Rows | slice) -> npt.NDArray[Any]:
        with self._telling():
            return np.asarray(self._x.astype(self._dtype)[selection])

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = f"{self._x.file.filename}: {self._x.name}"
            raise DataError(f"{where}: cannot be read: {error}; the file is damaged") from error


def read_chosen(x: h5py.Dataset, rows: Rows, out: npt.NDArray[Any]) -> None:
    """Reads rows of the file into `out`, in one pass over the blocks of it that hold them.

    HDF5 takes some 25 times longer for many rows one by one than for all that lies between them.

    Args:
        x: the array of the file.
        rows: (count,) rising row numbers of the file.
        out: (count, *shape of a sample), converted to its dtype.

    Raises:
        OSError: the file is unreadable.
        IndexError: it has become shorter.
    """
    size = max(1, _BLOCK_BYTES // (math.prod(out.shape[1:]) * out.itemsize))
    values = x.astype(out.dtype)
    done = 0
    while done < len(rows):
        first = rows[done]
        end = int(np.searchsorted(rows, first + size))
        block = values[first : rows[end - 1] + 1]
        out[done:end] = block[rows[done:end] - first]
        done = end
