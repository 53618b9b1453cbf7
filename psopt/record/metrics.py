"""`metrics.jsonl`: one JSON object a line, appended by one writer, readable at any moment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from psopt.reading import MOST_ROW, LongLine, lines_within, open_regular, parse_json
from psopt.record.files import cannot_write, flush_directory, replacing, to_json


class MetricsError(ValueError):
    """A line that is not a JSON object, and is not the last one."""


class MetricsWriter:
    """Appends rows to a metrics file; a last line that a crash has torn is removed first.

    Args:
        path: the file; made when it is missing. Its directory exists.

    Attributes:
        rows: in the file, those of earlier writers included.

    Raises:
        RecordError: by any method, when the disk is full or the file not to be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            new = not path.exists()
            self.rows = _mend(path)
            self._stream = path.open("ab")
            if new:
                flush_directory(path.parent)
        except OSError as error:
            raise cannot_write(path, error) from error

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row. It reaches the file at the next `flush`, or when the buffer is full."""
        line = to_json(row).encode() + b"\n"
        try:
            self._stream.write(line)
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self.rows += 1

    def flush(self) -> None:
        """Hand every row to the operating system, so that other processes see it."""
        try:
            self._stream.flush()
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def sync(self) -> None:
        """Bring what was flushed to the disk; another thread than the writer's may do it."""
        try:
            os.fsync(self._stream.fileno())
        except (OSError, ValueError) as error:  # ValueError: it was closed meanwhile
            raise cannot_write(self._path, OSError(str(error))) from error

    def truncate(self, rows: int) -> None:
        """Drop all rows but the first ``rows``, and a torn last line: what a resumed run will do again.

        Raises:
            MetricsError: a line in the middle is not a JSON object.
        """
        self._stream.close()
        try:
            with self._path.open("rb") as old, replacing(self._path) as new:
                kept = 0
                for number, line in enumerate(old, 1):
                    if _parse(self._path, number, line) is not None and kept < rows:
                        new.write(line)
                        kept += 1
            self.rows = kept
        except OSError as error:
            raise cannot_write(self._path, error) from error
        finally:
            self._stream = self._path.open("ab")

    def close(self) -> None:
        """Write what is left and close the file."""
        try:
            self._stream.close()
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file, in order; a torn last line (a run in progress) is left out.

    Raises:
        MetricsError: a line other than the last is not a JSON object; it names file and line.
        FileNotFoundError: there is no such file.
        OSError: it is a link, a pipe or a device, or cannot be read.
    """
    rows: list[dict[str, Any]] = []
    with open_regular(path, follow=False) as stream:
        try:
            for number, line in enumerate(lines_within(stream, MOST_ROW), 1):
                row = _parse(path, number, line)
                if row is not None:
                    rows.append(row)
        except LongLine as error:
            raise MetricsError(f"{path}:{error}; the file is damaged, remove it") from error
    return rows


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any] | None:
    """The row of a line, or None for a torn one; only the last can lack its line end."""
    try:
        row = parse_json(line)
    except ValueError as error:
        if not line.endswith(b"\n"):
            return None
        raise MetricsError(
            f"{path}:{number}: not JSON ({error}); the file is damaged, remove this line"
        ) from error
    if not isinstance(row, dict):
        if not line.endswith(b"\n"):
            return None
        raise MetricsError(
            f"{path}:{number}: not a JSON object; the file is damaged, remove this line"
        )
    return row


def _mend(path: Path) -> int:
    """Make the file end with a line end: complete the last line, or cut it when it is torn.

    Returns:
        The lines that it has then.
    """
    if not path.exists():
        return 0
    with path.open("r+b") as stream:
        start, lines, line = 0, 0, b""
        for line in stream:
            start += len(line)
            lines += 1
        if not line or line.endswith(b"\n"):
            return lines
        if _parse(path, 0, line) is None:
            stream.truncate(start - len(line))
            return lines - 1
        stream.seek(start)
        stream.write(b"\n")
        return lines
