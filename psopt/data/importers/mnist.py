"""IDX files: MNIST, and the sets that copy its format and file names (Fashion-MNIST, KMNIST)."""

from __future__ import annotations

import gzip
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from psopt.data.errors import DataError
from psopt.data.importers.table import Imported, Part
from psopt.reading import most_unpacked, open_regular

_UNSIGNED_BYTE = 0x08
_BLOCK_BYTES = 2**24


def read_mnist(source: Path) -> Imported:
    """Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte, with .gz or without, from a directory.

    Raises:
        DataError: a file is missing, truncated, or not IDX.
    """
    train, test = _part(source, "train"), _part(source, "t10k")
    classes = max(10, int(train.y.max(initial=0)) + 1)
    return Imported(
        train=train,
        test=test,
        classes=tuple(str(label) for label in range(classes)),
        source=f"IDX files of {source.name}",
    )


def _part(source: Path, prefix: str) -> Part:
    images = read_idx(_find(source, f"{prefix}-images", "idx3-ubyte"), dimensions=3)
    labels = read_idx(_find(source, f"{prefix}-labels", "idx1-ubyte"), dimensions=1)
    if len(images) != len(labels):
        raise DataError(f"{source}: {prefix}: {len(images)} images but {len(labels)} labels")
    return Part(images[:, None], labels.astype(np.int64))


def _find(source: Path, stem: str, kind: str) -> Path:
    names = [f"{stem}{dot}{kind}{suffix}" for dot in "-." for suffix in ("", ".gz")]
    for name in names:
        if (source / name).is_file():
            return source / name
    raise DataError(f"{source}: holds none of {', '.join(names)}")


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """One IDX array of unsigned bytes, compressed or not.

    Raises:
        DataError: not IDX of so many dimensions, or shorter or longer than its header says, which may
            be no more than such a file can hold.
    """
    try:
        with ExitStack() as opened:
            stream: Any = opened.enter_context(open_regular(path))
            most = path.stat().st_size
            if path.suffix == ".gz":
                stream, most = opened.enter_context(gzip.open(stream)), most_unpacked(most)
            return _read_idx(stream, path, dimensions, most)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}; fetch the file again") from error


def _read_idx(stream: Any, path: Path, dimensions: int, most: int) -> npt.NDArray[np.uint8]:
    head = stream.read(4 + 4 * dimensions)
    if head[:4] != bytes([0, 0, _UNSIGNED_BYTE, dimensions]) or len(head) < 4 + 4 * dimensions:
        raise DataError(
            f"{path}: not an IDX file of unsigned bytes in {dimensions} dimensions: it starts with "
            f"{head[:4].hex(' ') or 'nothing'}"
        )
    shape = tuple(int(size) for size in np.frombuffer(head[4:], ">u4"))
    expected = int(np.prod(shape, dtype=object))
    if expected > most:
        raise DataError(
            f"{path}: its header says {expected} bytes of values, more than such a file can hold"
        )
    body = bytearray()
    while block := stream.read(min(expected + 1 - len(body), _BLOCK_BYTES)):
        body += block
    if len(body) != expected:
        found = "more" if len(body) > expected else f"{len(body)}"
        raise DataError(f"{path}: its header says {expected} bytes of values, it holds {found}")
    return np.frombuffer(body, np.uint8).reshape(shape)
