"""A disk that fails, or a process that is killed, at one chosen call out of all that a save makes.

Everything runs in forked children: torch and h5py are loaded once, and a kill is a real one.
"""

from __future__ import annotations

import io
import os
import signal
import stat
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from psopt.record import CheckpointError

DONE, REFUSED, BROKEN = 0, 7, 99
"""Exit statuses of a child: all went well, a CheckpointError was raised, something else was."""


class Disk:
    """Stands between a process and the calls that change files.

    Args:
        at: number of the call, from 1, that is the last, or fails; 0 for none.
        error: errno of the failure; None to be killed by SIGKILL, in the middle of a write.
    """

    def __init__(self, at: int = 0, error: int | None = None) -> None:
        self.at, self.error = at, error
        self.calls: list[str] = []

    def install(self) -> None:
        """Take the place of the calls in this process, for good."""
        for name in ("fsync", "replace", "unlink", "mkdir"):
            setattr(os, name, self._watched(name, getattr(os, name)))
        right = Path.open
        disk = self

        def opened(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if mode != "x+b":
                return right(path, mode, *arguments, **options)
            disk.meet("open")
            return _File(disk, path)

        Path.open = opened  # type: ignore[method-assign,assignment]

    def meet(self, name: str, before: Callable[[], object] = lambda: None) -> None:
        """One call; ``before`` is what of it has happened when the process is killed."""
        self.calls.append(name)
        if len(self.calls) != self.at:
            return
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        before()
        os.kill(os.getpid(), signal.SIGKILL)

    def _watched(self, name: str, right: Callable[..., Any]) -> Callable[..., Any]:
        def watched(what: Any, *arguments: Any, **options: Any) -> Any:
            folder = name == "fsync" and stat.S_ISDIR(os.fstat(what).st_mode)
            self.meet("fsync of a directory" if folder else name)
            return right(what, *arguments, **options)

        return watched


class _File(io.FileIO):
    """A file without a buffer: each write is one that reaches the system."""

    def __init__(self, disk: Disk, path: Path) -> None:
        super().__init__(str(path), "x+")
        self._disk = disk

    def write(self, data: Any) -> int:
        whole = memoryview(data).cast("B")
        self._disk.meet("write", lambda: super(_File, self).write(whole[: len(whole) // 2]))
        return super().write(whole)

    def flush(self) -> None:
        self._disk.meet("flush")
        super().flush()

    def truncate(self, size: int | None = None) -> int:
        self._disk.meet("truncate")
        return super().truncate(size)


def child(disk: Disk, act: Callable[[], object]) -> tuple[int, list[str]]:
    """Fork, and do something on that disk.

    Returns:
        Exit status, negative for a signal; and the calls that were made, where there was no kill.
    """
    torch.set_num_threads(1)  # a child has none of the threads of its parent
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of Python 3.12, where there are threads
        process = os.fork()
    if not process:
        _be_the_child(disk, act, writing)
    os.close(writing)
    with os.fdopen(reading) as told:
        calls = told.read().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), calls


def _be_the_child(disk: Disk, act: Callable[[], object], writing: int) -> None:
    status = BROKEN
    try:
        disk.install()
        try:
            act()
            status = DONE
        except CheckpointError:
            status = REFUSED
        os.write(writing, "\n".join(disk.calls).encode())
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    os._exit(status)
