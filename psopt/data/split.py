"""The samples of one split, by row number, as the replicas read them.

A split that fits the cache is held in memory as it is stored (uint8 images take a quarter of their
float32 size, which counts where many ranks share a node) and normalised batch by batch; a larger
one is read from the file when it is asked for. Both give the same bits.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from psopt.data.errors import DataError
from psopt.data.layout import Table, member, open_file
from psopt.data.reader import Cached, Reader, Rows, Windowed, read_chosen

_SPREAD = 256  # samples of a fingerprint


class Split:
    """The training or the test samples. Made by `open_dataset`.

    Nothing of x is read before the first batch: a rank that never asks for test samples never
    loads them.

    Args:
        path: the HDF5 file.
        table: the split's description and its y.
        rows: use this many rows of the table, the first ones.
        cached: hold x in memory.
        affine: (scale, shift) of the normalisation, each broadcastable to a batch; None for none.
    """

    def __init__(
        self,
        path: Path,
        table: Table,
        rows: int,
        *,
        cached: bool,
        affine: tuple[Tensor, Tensor] | None,
    ) -> None:
        self.path, self.name, self.input_shape = path, table.name, table.shape
        self.cached = cached
        self.raw_dtype = table.held
        self._rows = rows
        self._chosen = None if table.chosen is None else table.chosen[:rows]
        self._y = torch.from_numpy(table.y[:rows].copy())
        self._affine = affine
        self._reader: Reader | None = None
        self._file: h5py.File | None = None

    def __len__(self) -> int:
        return self._rows

    @property
    def y(self) -> Tensor:
        """All labels (samples,) int64, or all targets (samples, width) float32; not a copy."""
        return self._y

    @property
    def nbytes(self) -> int:
        """Size of x, in bytes, as it is held in memory."""
        return self._rows * math.prod(self.input_shape) * self.raw_dtype.itemsize

    def batch(self, rows: Rows | Iterable[int]) -> tuple[Tensor, Tensor]:
        """The samples of the rows, in that order; rows may repeat.

        Args:
            rows: (count,) int64 row numbers.

        Returns:
            x (count, *input_shape) float32, normalised; y (count,) int64 labels, or (count, width)
            float32 targets. Both are new tensors.

        Raises:
            IndexError: a row is not in the split.
            DataError: the file became unreadable.
        """
        # A copy of the few numbers, for torch takes neither read-only nor reversed arrays.
        index = np.array(rows, dtype=np.int64)
        x = self._normalised(self._source().take(index), owned=True)
        return x, self._y.index_select(0, torch.from_numpy(index))

    def range(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """The samples of rows first..last-1, as `batch` gives them.

        Raises:
            IndexError: not 0 <= first <= last <= len(self).
            DataError: the file became unreadable.
        """
        x = self._normalised(self.raw(first, last), owned=not self.cached)
        return x, self._y[first:last].clone()

    def raw(self, first: int, last: int) -> Tensor:
        """Gives x of rows first..last-1 as held: uint8 or float32, not normalised, not a copy.

        Raises:
            IndexError: not 0 <= first <= last <= len(self).
            DataError: the file became unreadable.
        """
        if not 0 <= first <= last <= self._rows:
            raise IndexError(f"rows {first}..{last - 1} are not in 0..{self._rows - 1}")
        return self._source().window(first, last)

    def fingerprint(self) -> str:
        """SHA-256, 64 hexadecimal digits, of all y and of up to 256 samples spread over the split.

        It tells data sets apart that have the same shape, wherever their files lie.

        Raises:
            DataError: the file became unreadable.
        """
        spread = np.unique(np.linspace(0, self._rows - 1, _SPREAD).astype(np.int64))
        digest = hashlib.sha256(f"{self._rows} {self.input_shape} {self.raw_dtype}".encode())
        digest.update(self._y.numpy().tobytes())
        digest.update(self._source().take(spread).numpy().tobytes())
        return digest.hexdigest()

    def file_row(self, row: int) -> int:
        """The row of the file that a row of the split is."""
        return row if self._chosen is None else int(self._chosen[row])

    def describe(self) -> str:
        """One line for logs: samples, shape, dtype, kind of y, where x is held."""
        shape = "x".join(map(str, self.input_shape))
        kind = "labels" if self._y.ndim == 1 else f"targets of width {self._y.shape[1]}"
        held = "in memory" if self.cached else "read from the file"
        return (
            f"{self.name}: {self._rows} samples of {shape} {self.raw_dtype}, {kind}, "
            f"{self.nbytes / 2**20:.1f} MiB {held}"
        )

    def close(self) -> None:
        """Frees the cache and closes the file; the next batch opens it again."""
        self._reader = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _source(self) -> Reader:
        if self._reader is None:
            file = open_file(self.path)
            x = member(file, f"{self.name}/x")
            if self.cached:
                with file:
                    self._reader = Cached(torch.from_numpy(self._load(x)))
            else:
                self._file = file
                self._reader = Windowed(x, self.raw_dtype, self._rows, self._chosen)
        return self._reader

    def _load(self, x: h5py.Dataset) -> npt.NDArray[Any]:
        values = np.empty((self._rows, *self.input_shape), self.raw_dtype)
        try:
            if self._chosen is not None:
                read_chosen(x, self._chosen, values)
                return values
            x.read_direct(values, np.s_[: self._rows])  # converts to our dtype as it reads
        except (OSError, TypeError, ValueError, IndexError) as error:
            raise DataError(
                f"{self.path}: /{self.name}/x cannot be read: {error}; the file is damaged, or was "
                "changed since it was opened"
            ) from error
        return values

    def _normalised(self, raw: Tensor, *, owned: bool) -> Tensor:
        """Float32 x * scale + shift; in place of `raw` only when that is ours to change."""
        x = raw.to(torch.float32, copy=not owned)
        if self._affine is not None:
            scale, shift = self._affine
            x.mul_(scale).add_(shift)
        return x
