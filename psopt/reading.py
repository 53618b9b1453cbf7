"""Files that somebody else may have written: opened, measured and parsed within limits.

What is read here is data: nothing of it is executed, and its size is known before memory is taken.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

MOST_LEVELS = 64
"""So deep may JSON be nested; a record nests four levels."""

MOST_ROW = 2**20
"""Bytes of one line of a record."""

_MOST_DIGITS = 20  # of a whole number: 2**64 has as many
_ALWAYS, _TIMES = 2**28, 100


class LongLine(ValueError):  # noqa: N818 - reads as what was found
    """A line is longer than it may be; the text begins with its number."""


class _Lines(Protocol):
    """A file that is read line by line, bytes or text."""

    def readline(self, limit: int, /) -> Any: ...


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Opens a file to read it. A pipe or a device is refused: it may never end.

    Args:
        path: the file.
        follow: whether it may be a symbolic link.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    _require_regular(path, path.stat(follow_symlinks=follow).st_mode)
    # Somebody may have put a pipe there since: it is opened without waiting, and looked at again.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    stream = os.fdopen(os.open(path, flags), "rb")
    try:
        _require_regular(path, os.fstat(stream.fileno()).st_mode)
    except OSError:
        stream.close()
        raise
    return stream


def _require_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "a pipe, a socket or a device"
        raise OSError(errno.EINVAL, f"is {kind}, not a regular file", str(path))


def read_within(path: Path, most: int, *, follow: bool = True) -> bytes:
    """The content of a small file.

    Args:
        path: the file.
        most: bytes that it may have.
        follow: as for `open_regular`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger.
    """
    with open_regular(path, follow=follow) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise ValueError(f"the file is larger than {most} bytes")
    return data


def lines_within(stream: _Lines, most: int) -> Iterator[Any]:
    """The lines of a stream, with their ends.

    Raises:
        LongLine: one is longer than ``most``.
    """
    number = 0
    while line := stream.readline(most + 1):
        number += 1
        if len(line) > most:
            raise LongLine(f"{number}: the line is longer than {most} characters")
        yield line


def most_unpacked(packed: int) -> int:
    """How many bytes compressed data may unpack to: a hundred times as many, and 256 MiB anyway.

    Zlib packs zeros a thousandfold: beyond this it is a bomb, and not data, that has been packed.
    """
    return max(_ALWAYS, _TIMES * packed)


def parse_json(data: bytes, *, portable: bool = True) -> Any:
    """The value of one JSON text, UTF-8.

    Args:
        data: the text.
        portable: numbers are those that every reader takes; else they are those that Python writes:
            not finite ones too, and longer ones.

    Raises:
        ValueError: it is not JSON, nested too deeply, or holds a number that is none or immense.
    """
    try:
        value = (_PORTABLE if portable else _PYTHON).decode(data.decode())
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if data.count(b"[") + data.count(b"{") > MOST_LEVELS:  # only then may it be deep
        _check_depth(value)
    return value


_TOO_DEEP = f"nested more than {MOST_LEVELS} levels deep"


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [
            child
            for item in level
            if isinstance(item, list | dict)
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, list | dict)
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def _real(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:_MOST_DIGITS]} is beyond all floating-point numbers")
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


_PYTHON = json.JSONDecoder()
_PORTABLE = json.JSONDecoder(parse_int=_whole, parse_float=_real, parse_constant=_no_number)
