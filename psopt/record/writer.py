"""Checkpoints that are written while training goes on, by a thread of their own."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from psopt.record.allowance import TreeError
from psopt.record.checkpoint import CheckpointError, CheckpointStore
from psopt.record.tree import Tree
from psopt.record.tree_copy import TreeCopier

_NICE = 5
"""How much the thread stands back where cores are short. Not further: it holds the interpreter's lock
for moments, and who waits for that lock waits for a thread that gets no core."""


class CheckpointWriter:
    """Saves checkpoints in a thread, one at a time, by this contract.

    - ``begin`` copies the tree before it returns; the caller may change everything of it at once.
      The copy's memory is used again by the next save.
    - A save is `CheckpointStore.save`, read back and compared included. It counts when ``end`` has
      returned its file, and the checkpoint before it is kept until then.
    - One save at a time: the one before has to be ended before the next is begun.
    - Whatever goes wrong, or is to be warned of, is said by ``end``, in the caller's thread.
    - The thread touches the copy, the checkpoints' directory and what ``first`` touches, and nothing
      else: no MPI, no display, no generator of random numbers.
    - A process that ends in the middle leaves a temporary file at most, as any killed save does.
      Python waits for the thread when it exits; what ends a process at once does not.

    Args:
        store: of the checkpoints. Its listener is told by ``end``.

    Attributes:
        cpu_seconds: processor time of all saves that have ended.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._warnings: list[str] = []
        self._warn, self._store = store.warn, store.telling(self._warnings.append)
        self._copier = TreeCopier()
        self._thread: threading.Thread | None = None
        self._ended: Path | BaseException | None = None
        self.cpu_seconds = 0.0

    @property
    def open(self) -> bool:
        """Whether a save was begun and not ended."""
        return self._thread is not None

    @property
    def busy(self) -> bool:
        """Whether ``end`` would wait."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, step: int, tree: Mapping[str, Any], first: Callable[[], None]) -> None:
        """Start a save.

        Args:
            step: as of `CheckpointStore.save`.
            tree: as of `CheckpointStore.save`, and on any device.
            first: called in the thread; only when it has returned is anything written. It brings to
                the disk what the checkpoint refers to, and raises OSError where it cannot.

        Raises:
            CheckpointError: the tree holds a value that cannot be kept, or no thread can be had.
        """
        assert self._thread is None, "the save before this one was not ended"
        self._ended = None
        try:
            copy = self._copier.copy(tree)
            thread = threading.Thread(
                target=self._work, args=(step, copy, first), name="checkpoint writer"
            )
            thread.start()
        except (TreeError, RuntimeError) as error:  # RuntimeError: no thread, or no memory
            raise CheckpointError(f"step {step} was not saved: {error}") from error
        self._thread = thread

    def end(self, patience: float | None = None) -> Path | None:
        """Wait for the save, if there is one.

        Args:
            patience: the most seconds to wait; the save stays open when they are over.

        Returns:
            Its file; None where none was open, or it still is.

        Raises:
            CheckpointError: it has failed; see `CheckpointStore.save`.
        """
        if self._thread is None:
            return None
        self._thread.join(patience)
        if self._thread.is_alive():
            return None
        self._thread = None
        while self._warnings:
            self._warn(self._warnings.pop(0))
        if isinstance(self._ended, BaseException):
            raise self._ended
        return self._ended

    def _work(self, step: int, tree: Tree, first: Callable[[], None]) -> None:
        try:
            _stand_back()
            first()
            self._ended = self._store.save(step, tree)
        except OSError as error:
            self._ended = CheckpointError(f"step {step} was not saved: {error}")
        except BaseException as error:  # for whoever asks how it has ended
            self._ended = error
        finally:
            self.cpu_seconds += time.thread_time()  # the thread is this save's only


def _stand_back() -> None:
    """Linux has priorities of threads; elsewhere they are those of processes, and left alone."""
    if sys.platform == "linux":
        number = threading.get_native_id()
        with contextlib.suppress(OSError):  # it would be a courtesy
            os.setpriority(os.PRIO_PROCESS, number, os.getpriority(os.PRIO_PROCESS, number) + _NICE)
