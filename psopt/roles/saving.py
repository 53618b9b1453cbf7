"""When a run's state is on the disk, and what becomes of it where it cannot be: loud, and no end."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from psopt.record import CheckpointError, CheckpointStore, CheckpointWriter, Tree
from psopt.roles.journal import Journal

Mark = tuple[int, int, int]
"""What a checkpoint would have to tell that differs from the one before."""

_PATIENCE = 2.0  # seconds that a save may hold up the end of a job that fails


class Saver:
    """Saves a run's state while the run goes on.

    A failing disk does not end the training: it may be mended before the end. It is told to the
    journal as soon as anybody looks: by ``look``, which never waits, by the next ``save``, or at the
    end of the block that this manages, after which no save is under way.

    Args:
        store: of the checkpoints.
        journal: is warned; and is brought to the disk before a checkpoint counts.

    Attributes:
        seconds: that the training has spent in here, copying and waiting.
        writer: the thread that writes.
    """

    def __init__(self, store: CheckpointStore, journal: Journal) -> None:
        self._store, self._journal = store, journal
        self.writer = CheckpointWriter(store)
        self.seconds = 0.0
        self._step = 0
        self._mark: Mark | None = None
        self._problem: str | None = None

    def rehearse(self, tree: Tree) -> None:
        """See that checkpoints can be written.

        Raises:
            CheckpointError: they cannot.
        """
        self._store.rehearse(tree)

    def resumed(self, mark: Mark) -> None:
        """The state of ``mark`` is what the newest checkpoint holds."""
        self._mark = mark

    def has(self, mark: Mark) -> bool:
        """Whether the state of ``mark`` is on the disk, or on the way there."""
        return self._mark == mark

    def save(self, step: int, mark: Mark, state: Callable[[], Tree]) -> None:
        """Begin to save, once the save before has ended."""
        self.wait()
        start = time.perf_counter()
        self._step, self._problem = step, None
        try:
            self._journal.flush()  # a resume keeps the rows up to here
            self.writer.begin(step, state(), self._journal.sync)
            self._mark = mark
        except (CheckpointError, OSError) as error:
            self._fail(error)
        self.seconds += time.perf_counter() - start

    def look(self) -> None:
        """Say how the last save has ended, if it has."""
        if self.writer.open and not self.writer.busy:
            self.wait()

    def wait(self) -> str | None:
        """What was wrong with the last save, once it has ended."""
        start = time.perf_counter()
        try:
            self.writer.end()
        except CheckpointError as error:
            self._fail(error)
        self.seconds += time.perf_counter() - start
        return self._problem

    def _fail(self, error: Exception) -> None:
        self._mark = None
        self._problem = f"checkpoint at step {self._step} failed: {error}"
        self._journal.warn(self._problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.wait()
            return
        try:
            self.writer.end(_PATIENCE)
        except CheckpointError as failure:
            self._fail(failure)
        if self.writer.open:
            self._journal.warn(
                f"checkpoint at step {self._step}: the run ends before it was written"
            )
