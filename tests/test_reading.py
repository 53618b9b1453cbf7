"""Opening, measuring and parsing within limits."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from psopt.reading import (
    MOST_LEVELS,
    LongLine,
    lines_within,
    most_unpacked,
    open_regular,
    parse_json,
    read_within,
)


def test_a_file_and_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"text")
    (tmp_path / "b").symlink_to("a")
    for name in "ab":
        with open_regular(tmp_path / name) as stream:
            assert stream.read() == b"text"
    with pytest.raises(OSError, match="is a symbolic link, not a regular file"):
        open_regular(tmp_path / "b", follow=False)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="is a pipe, a socket or a device"):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_sizes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_within(tmp_path / "a", 5) == b"12345"
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        read_within(tmp_path / "a", 4)
    assert most_unpacked(10) == 2**28
    assert most_unpacked(2**30) == 100 * 2**30


def test_lines() -> None:
    assert list(lines_within(io.BytesIO(b"ab\nc\n\nd"), 3)) == [b"ab\n", b"c\n", b"\n", b"d"]
    assert list(lines_within(io.StringIO("ab\nc"), 3)) == ["ab\n", "c"]
    lines = lines_within(io.BytesIO(b"ab\nabc\n"), 3)
    assert next(lines) == b"ab\n"
    with pytest.raises(LongLine, match=r"^2: the line is longer than 3"):
        next(lines)


@pytest.mark.parametrize(
    "value",
    [None, True, -1, 2**64 - 1, 1.5e-300, "ä\n", [], {}, {"a": [1, {"b": None}]}, [[]] * 999],
)
def test_what_psopt_writes_is_read(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff", "utf-8"),
        (b"NaN", "NaN is no JSON number"),
        (b"[-Infinity]", "-Infinity is no JSON number"),
        (b"1e999", "beyond all floating-point"),
        (b"9" * 21, "a whole number of 21 digits"),
        (b"9" * 10**6, "a whole number of 1000000 digits"),
        (b"[" * (MOST_LEVELS + 1) + b"]" * (MOST_LEVELS + 1), "nested more than 64 levels"),
        (b'{"a":' * 80 + b"1" + b"}" * 80, "nested more than 64 levels"),
        (b"[" * 10**6, "nested more than 64 levels"),
    ],
)
def test_what_psopt_does_not_write_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)


def test_as_deep_as_it_may_be() -> None:
    parse_json(b"[" * MOST_LEVELS + b"]" * MOST_LEVELS)


def test_numbers_of_python() -> None:
    """A checkpoint holds losses that are not finite, and states of 128-bit generators."""
    assert parse_json(b"[Infinity, 1e999]", portable=False) == [float("inf")] * 2
    assert parse_json(str(2**127).encode(), portable=False) == 2**127
