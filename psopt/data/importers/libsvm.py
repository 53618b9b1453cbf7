"""LIBSVM / SVMlight text: a line a sample, `target index:value index:value ... # comment`."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from psopt.data.errors import DataError
from psopt.data.importers.table import Imported, Part
from psopt.data.importers.targets import Target, choose_test_rows, encode
from psopt.reading import LongLine, lines_within, most_unpacked, open_regular

_MOST_FEATURES = 2**24
_MOST_LINE = 2**24  # characters

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def read_libsvm(
    source: Path,
    *,
    test: str | Path | None = None,
    test_fraction: float | None = None,
    target: Target = "auto",
    features: int | None = None,
    seed: int = 1,
) -> Imported:
    """Reads one or two text files, plain or .gz, .bz2, .xz; x become dense float32.

    Indices count from 1; from 0 if a 0 occurs. `qid:` is ignored.

    Args:
        source: the training file.
        test: the test file; without it a share of the training file is set apart.
        test_fraction: that share, in (0, 1), 0.2 when None.
        target: "classes", "values" (regression), or "auto": values if any target is not whole.
        features: the width of x; None for the largest index.
        seed: of the choice of test samples.

    Raises:
        DataError: a file is missing, damaged, or a line is wrong: the message has its number.
    """
    if test is not None and test_fraction is not None:
        raise DataError(f"{source}: give a test file or a test fraction, not both")
    sparse = _parse(source)
    if test is None:
        rows, test_rows = choose_test_rows(len(sparse.y), test_fraction, seed, str(source))
        other = sparse
    else:
        other = _parse(Path(test))
        rows, test_rows = np.arange(len(sparse.y)), np.arange(len(other.y))
    base = 0 if 0 in (sparse.least, other.least) else 1
    needed = max(sparse.largest, other.largest) + 1 - base
    width = needed if features is None else features
    if width < max(1, needed):
        raise DataError(f"{source}: {needed} features occur, but features is {width}")
    y, test_y, classes = encode(sparse.y[rows], other.y[test_rows], target, str(source))
    return Imported(
        train=Part(_DenseRows(sparse, rows, base, width), y),
        test=Part(_DenseRows(other, test_rows, base, width), test_y),
        classes=classes,
        source=f"LIBSVM text {source.name}",
    )


class _Sparse:
    """Compressed rows: of row i, entries starts[i]..starts[i+1] of indices and values."""

    def __init__(self) -> None:
        self._y, self._starts = array("d"), array("q", [0])
        self._indices, self._values = array("q"), array("f")
        self.least, self.largest = 1, 0

    def append(self, y: float, indices: list[int], values: list[float]) -> None:
        self._y.append(y)
        self._indices.extend(indices)
        self._values.extend(values)
        self._starts.append(len(self._indices))
        if indices:  # they rise
            self.least = min(self.least, indices[0])
            self.largest = max(self.largest, indices[-1])

    @property
    def y(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self._y, np.float64)

    def dense(self, rows: npt.NDArray[np.int64], base: int, width: int) -> npt.NDArray[np.float32]:
        """The rows as (len(rows), width)."""
        x = np.zeros((len(rows), width), np.float32)
        for place, row in enumerate(rows):
            first, last = self._starts[row], self._starts[row + 1]
            x[place, np.array(self._indices[first:last], np.int64) - base] = np.array(
                self._values[first:last], np.float32
            )
        return x


class _DenseRows:
    """Some rows of a sparse table, made dense window by window (a `RowSource`)."""

    def __init__(self, table: _Sparse, rows: npt.NDArray[np.int64], base: int, width: int) -> None:
        self._table, self._rows, self._base, self._width = table, rows, base, width
        self.shape = (len(rows), width)
        self.dtype: np.dtype[Any] = np.dtype(np.float32)

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        return self._table.dense(self._rows[rows], self._base, self._width)


def _parse(path: Path) -> _Sparse:
    table = _Sparse()
    for number, line in enumerate(_lines(path), start=1):
        words = line.partition("#")[0].split()
        if words:
            _append(table, words, f"{path}:{number}")
    if not len(table.y):
        raise DataError(f"{path}: holds no samples")
    return table


def _lines(path: Path) -> Iterator[str]:
    opener = _OPENERS.get(path.suffix)
    try:
        with ExitStack() as opened:
            packed: Any = opened.enter_context(open_regular(path))
            most = most_unpacked(path.stat().st_size) if opener else math.inf
            stream = io.TextIOWrapper(
                opened.enter_context(opener(packed)) if opener else packed, encoding="utf-8"
            )
            for line in lines_within(opened.enter_context(stream), _MOST_LINE):
                most -= len(line)
                if most < 0:
                    raise DataError(
                        f"{path}: is a small file that unpacks to a huge one; unpack it"
                    )
                yield line
    except LongLine as error:
        raise DataError(f"{path}:{error}") from error
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def _append(table: _Sparse, words: list[str], where: str) -> None:
    target = _number(words[0], where)
    indices: list[int] = []
    values: list[float] = []
    for word in words[1:]:
        index, colon, value = word.partition(":")
        if index == "qid" and colon:
            continue
        if not colon or not index.isascii() or not index.isdigit():
            raise DataError(f"{where}: {word[:40]!r}: expected index:value")
        if len(index) > len(str(_MOST_FEATURES)) or int(index) > _MOST_FEATURES:
            raise DataError(
                f"{where}: index {index[:40]}: x are dense, of {_MOST_FEATURES} at most"
            )
        if indices and int(index) <= indices[-1]:
            raise DataError(f"{where}: index {index} after {indices[-1]}; indices must rise")
        indices.append(int(index))
        values.append(_number(value, where))
    table.append(target, indices, values)


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise DataError(f"{where}: {text[:40]!r} is not a number") from None
    if not math.isfinite(value):
        raise DataError(f"{where}: {text!r}: expected a finite number")
    return value
