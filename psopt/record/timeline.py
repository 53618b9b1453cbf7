"""`timeline.json`: what each rank did when, for chrome://tracing, Perfetto and `psopt report`.

Chrome's JSON Array Format: one event a line. The closing bracket may be missing, so the file of a
run that was killed is valid too.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from psopt.reading import MOST_ROW, LongLine, lines_within, open_regular, parse_json
from psopt.record.files import cannot_write, to_json

_MICROSECONDS = 1e6
_LONGEST = 1e15  # microseconds: no clock of a run has shown more


class Timeline:
    """Streams events to a trace file; reopening one that exists continues it.

    Args:
        path: the file; its directory exists.
        limit: the most spans to keep over all attempts; the ones after it are left out, and one
            event called "truncated" says so. With 0 no file is made.
        warn: is told once when the file cannot be written; nothing is recorded from then on.
    """

    def __init__(self, path: Path, limit: int, warn: Callable[[str], None] = warnings.warn) -> None:
        self._path, self._limit, self._warn = path, limit, warn
        self._spans = 0
        self._truncated = False
        self._named: set[tuple[int, str]] = set()
        self._empty = True
        self._stream: BinaryIO | None = None
        if limit > 0:
            try:
                self._open()
            except (OSError, ValueError) as error:
                self._fail(error)

    def name(self, rank: int, label: str) -> None:
        """Say what a rank is called in the viewer.

        Args:
            rank: 0 for the coordinator, worker id + 1 for a worker.
            label: text, such as "worker 3 on node17".
        """
        if self._stream is None or (rank, label) in self._named:
            return
        self._named.add((rank, label))
        self._write(_about(rank, "thread_name", {"name": label}))
        self._write(_about(rank, "thread_sort_index", {"sort_index": rank}))

    def add(self, rank: int, kind: str, start: float, end: float) -> None:
        """Record that a rank was busy with `kind` from `start` to `end`.

        Args:
            rank: 0 for the coordinator, worker id + 1 for a worker.
            kind: compute, wait, send, receive, update, evaluate or checkpoint.
            start: seconds on the run's clock.
            end: seconds on the run's clock.
        """
        if self._stream is None or self._truncated:
            return
        at = start * _MICROSECONDS
        if self._spans >= self._limit:
            self._truncated = True
            where = {"pid": 0, "tid": rank, "ts": round(at, 3)}
            self._write({"name": "truncated", "ph": "i", "s": "g", **where})
            return
        self._spans += 1
        duration = (end - start) * _MICROSECONDS
        # By hand, in a quarter of the time that to_json needs: there are very many of these.
        self._append(
            f'{{{_head(kind)}, "ph": "X", "dur": {duration:.3f}, '
            f'"pid": 0, "tid": {rank}, "ts": {at:.3f}}}'
        )

    def flush(self) -> None:
        """Hand every event to the operating system."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        """Write the closing bracket and close the file. Closing twice does no harm."""
        if self._stream is None:
            return
        try:
            with self._stream as stream:
                stream.write(b"\n]\n")
            self._stream = None
        except OSError as error:
            self._fail(error)

    def _open(self) -> None:
        events, end = _scan(self._path) if self._path.exists() else ([], 0)
        for event in events:
            self._recall(event)
        self._empty = not events
        self._stream = self._path.open("r+b" if events else "wb")
        if events:
            self._stream.truncate(end)
            self._stream.seek(end)
        else:
            self._stream.write(b"[\n")

    def _fail(self, error: OSError | ValueError) -> None:
        """A picture of the run is no reason to end it."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
        text = cannot_write(self._path, error) if isinstance(error, OSError) else error
        self._warn(f"{text}; the timeline goes no further")

    def _recall(self, event: dict[str, Any]) -> None:
        """Take an event of an earlier attempt into account."""
        match event:
            case {"ph": "X"}:
                self._spans += 1
            case {"name": "truncated"}:
                self._truncated = True
            case {"name": "thread_name", "tid": int(rank), "args": {"name": str(label)}}:
                self._named.add((rank, label))

    def _write(self, event: dict[str, Any]) -> None:
        self._append(to_json(event))

    def _append(self, line: str) -> None:
        if self._stream is not None:
            try:
                self._stream.write((line if self._empty else ",\n" + line).encode())
            except OSError as error:
                self._fail(error)
            self._empty = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def read_timeline(path: Path) -> list[dict[str, Any]]:
    """The events of a trace file, also of a run that was killed or is still going.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it is a link, a pipe or a device, or cannot be read.
        ValueError: the file is damaged; it names file and line.
    """
    return _scan(path)[0]


def _scan(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The whole events of a trace file, and the offset in bytes at which the last one ends."""
    events: list[dict[str, Any]] = []
    start = end = 0
    with open_regular(path, follow=False) as stream:
        try:
            for number, line in enumerate(lines_within(stream, MOST_ROW), 1):
                text = line.rstrip().removesuffix(b",")
                if text not in (b"", b"[", b"]"):
                    try:
                        events.append(_event(text))
                    except ValueError as error:
                        if not line.endswith(b"\n"):  # torn by a crash; the last line
                            break
                        raise ValueError(
                            f"{path}:{number}: not a trace event ({error}); the file is damaged, "
                            "remove it"
                        ) from error
                    end = start + len(text)
                start += len(line)
        except LongLine as error:
            raise ValueError(f"{path}:{error}; the file is damaged, remove it") from error
    return events, end


def _event(text: bytes) -> dict[str, Any]:
    """One event, with all that a reader of this package looks at.

    Raises:
        ValueError: it is no event.
    """
    event = parse_json(text)
    match event:
        case {
            "ph": "X",
            "name": str(),
            "tid": int(),
            "ts": int() | float() as start,
            "dur": int() | float() as length,
        } if abs(start) <= _LONGEST and 0 <= length <= _LONGEST:
            return dict(event)
        case {"name": "thread_name", "tid": int(), "args": {"name": str()}}:
            return dict(event)
        case {"ph": str(kind)} if kind != "X" and event.get("name") != "thread_name":
            return dict(event)
    raise ValueError("a part of it is missing, or is nonsense")


def _about(rank: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": 0, "tid": rank, "args": args}


@cache
def _head(kind: str) -> str:
    """The first two keys of a span's event: they are the same for all spans of a kind."""
    return f'"name": {to_json(kind)}, "cat": {to_json(kind)}'
