"""What a run has said, whoever kept it, and what it says while it goes on."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import BinaryIO

from psopt.reading import open_regular
from psopt.record.directory import NotARun, RunDirectory
from psopt.record.submission import BatchFiles

OUTPUT = "output.log"
"""In a run's directory: what its launcher keeps of the run's output."""

_LAST, _MOST_REASON = 50, 300  # lines in which the last words are found, and characters of them
_BLOCK = 1 << 16  # bytes
_MOST = 1 << 22  # bytes of a log that are looked at at a time


def logs_of(run: Path) -> list[Path]:
    """The logs of a run, oldest first: those of its batch jobs, else its launcher's, else its own.

    Raises:
        NotARun: the logs of its jobs are not in its directory.
    """
    files = BatchFiles(run)
    if files.directory.is_symlink():
        raise NotARun(f"{files.directory}: is a symbolic link, which may lead anywhere; remove it")
    if found := sorted(files.directory.glob("*.log"), key=_numbers):
        return found
    return [path for path in (run / OUTPUT, RunDirectory(run).log_path) if path.exists()][:1]


def log_of(run: Path) -> Path:
    """Where the last words of a run are, or would be."""
    with contextlib.suppress(NotARun):
        if found := logs_of(run):
            return found[-1]
    return RunDirectory(run).log_path


def last_words(run: Path) -> str:
    """The last line in a run's logs that says something of what went wrong; empty where there is none."""
    try:
        lines = [line.strip() for line in Words(run).last(_LAST)]
    except NotARun:
        return ""
    said = [line for line in lines if line and not line.startswith("run directory: ")]
    return said[-1][:_MOST_REASON] if said else ""


class Words:
    """The lines of a run's logs, one log after the other.

    Args:
        run: the run's directory.

    Raises:
        NotARun: by any method, when a log is none.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._ends: dict[Path, int] = {}  # up to which byte each was read

    def last(self, lines: int) -> list[str]:
        """So many lines from the end; of very long ones fewer."""
        found: list[str] = []
        for path in reversed(logs_of(self._run)):
            with _opened(path) as stream:
                end = _whole_lines(stream)
                found[:0] = _tail(stream, end, lines - len(found))
            self._ends[path] = end
        return found

    def more(self, *, whole: bool = True) -> list[str]:
        """The lines that came since the last call; without ``whole`` also one that is not at its end."""
        found: list[str] = []
        for path in logs_of(self._run):
            with _opened(path) as stream:
                size = stream.seek(0, io.SEEK_END)
                start = self._ends.get(path, 0)
                start = 0 if start > size else start
                stream.seek(start)
                block = stream.read(_MOST)
            end = block.rfind(b"\n") + 1
            if len(block) == _MOST:
                end = end or _MOST  # a line without end
            elif not whole:
                end = len(block)
            self._ends[path] = start + end
            found += _text(block[:end])
        return found


def _numbers(path: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", path.stem)], path.name


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path, follow=False)
    except OSError as error:
        raise NotARun(f"{path}: cannot be read: {error.strerror}") from error


def _whole_lines(stream: BinaryIO) -> int:
    """Where the last line that is at its end ends, in bytes; the end of all where that is far."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, size - _BLOCK))
    block = stream.read(_BLOCK)
    return size - len(block) + (block.rfind(b"\n") + 1 or len(block))


def _tail(stream: BinaryIO, end: int, lines: int) -> list[str]:
    """The last lines before byte ``end``."""
    block = b""
    while lines > 0 and len(block) < min(end, _MOST) and block.count(b"\n") <= lines:
        start = max(0, end - len(block) - _BLOCK)
        stream.seek(start)
        block = stream.read(end - len(block) - start) + block
    return _text(block)[-lines:] if lines > 0 else []


def _text(block: bytes) -> list[str]:
    return block.decode(errors="replace").removesuffix("\n").split("\n") if block else []
