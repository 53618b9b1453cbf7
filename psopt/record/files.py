"""Files that are either whole or absent, and JSON that every reader accepts."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from psopt.reading import parse_json, read_within

_MOST_OBJECT = 1 << 20  # bytes of a small file
# What file systems answer that cannot flush a directory; there is nothing more to be done there.
_CANNOT_FLUSH_DIRECTORY = {errno.EINVAL, errno.EBADF, errno.ENOTSUP}


class RecordError(OSError):
    """A file of a run's record cannot be written; the text names it, the cause and the remedy."""


def cannot_write(path: Path, error: OSError) -> RecordError:
    """What to raise when ``path`` could not be written."""
    return RecordError(
        f"{path}: cannot be written: {error.strerror or error}; see to the disk's space and permissions"
    )


def to_json(value: object, *, indent: int | None = None) -> str:
    """JSON text of `value`; a float that is not finite becomes null, a NumPy scalar a number.

    Args:
        value: dicts with text keys, lists, tuples, text, numbers, None, paths, NumPy scalars.
        indent: spaces a level, or None for one line.

    Raises:
        TypeError: a value of another type.
    """
    try:
        return json.dumps(value, allow_nan=False, indent=indent)
    except (TypeError, ValueError):  # the rare case, so that the common one costs one pass
        return json.dumps(_plain(value), allow_nan=False, indent=indent)


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file so that a reader, or a crash, meets the old content or the new, never a part.

    Args:
        path: the file; its directory exists.
        content: bytes, or text that is written as UTF-8.

    Raises:
        OSError: the disk is full, the directory is missing or read-only; the old file is as it was.
    """
    with replacing(path) as handle:
        handle.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A temporary file beside `path`, open for writing and reading; at the end it takes its place.

    It is flushed to disk before it is renamed, and the directory after. When the block raises, the
    temporary file is removed and `path` is as it was. Where `path` is a link, the link is replaced:
    nothing outside of the directory is written.
    """
    temporary = temporary_for(path)
    temporary.unlink(missing_ok=True)  # of a process of this number that was killed
    try:
        with temporary.open("x+b") as handle:  # which never follows a link
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    flush_directory(path.parent)


def temporary_for(path: Path) -> Path:
    """The hidden name, in the same directory, under which `path` is written before the rename."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def make_directory(path: Path) -> None:
    """Make a directory and its parents, where they are missing, so that they survive a power cut."""
    if path.is_dir():
        return
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for place in reversed(missing):
        flush_directory(place.parent)


def flush_directory(path: Path) -> None:
    """Flush a directory to disk, so that a rename in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH_DIRECTORY:
            raise
    finally:
        os.close(descriptor)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a small file; empty where there is none, or none that can be read."""
    try:
        value = parse_json(read_within(path, _MOST_OBJECT, follow=False))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
