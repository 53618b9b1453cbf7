"""The checkpoints of a run: one verified file a step, and a store that keeps the last ones."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from psopt.config import one_line
from psopt.reading import open_regular
from psopt.record.allowance import TreeError
from psopt.record.checkpoint_file import Stamp, read, verify, write
from psopt.record.files import make_directory, replacing
from psopt.record.tree import Tree

_TRIAL = "step-trial.h5"
_NAME = re.compile(r"step-(\d{12,})\.h5")
_REMEDY = "resume from an older checkpoint, or start again"


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read; the text names the file and the cause."""


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged and an older one is used, or one could not be removed."""


def warn_of_checkpoint(text: str) -> None:
    """Warn as Python does, where nobody else is there to be told."""
    warnings.warn(text, CheckpointWarning, stacklevel=4)


class CheckpointStore:
    """The checkpoints of one run; one process writes them.

    Args:
        directory: where they are; made at the first save.
        keep: how many to keep, at least 1.
        warn: is told of a checkpoint that is damaged and skipped, or could not be removed.
        run: identity of the run (letters, digits, ``-``), which its copies share. It is written into
            every checkpoint, and one of another run is as good as damaged. Where either is empty,
            nothing is known, and nothing refused.
    """

    def __init__(
        self,
        directory: Path,
        keep: int,
        warn: Callable[[str], None] = warn_of_checkpoint,
        run: str = "",
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; keep at least 1 checkpoint")
        self._directory = Path(directory)
        self._keep, self.warn, self._run = keep, warn, run

    def telling(self, warn: Callable[[str], None]) -> CheckpointStore:
        """The same checkpoints; somebody else is told."""
        return CheckpointStore(self._directory, self._keep, warn, self._run)

    def save(self, step: int, tree: Tree) -> Path:
        """Write a checkpoint, read it back, and only then drop the ones that are too old.

        Args:
            step: the coordinator's step, from 0. A checkpoint of the same step is replaced, one of
                a later step belongs to a course that the run has left and is removed.
            tree: see `psopt.record.tree`.

        Returns:
            The file.

        Raises:
            CheckpointError: the disk is full, read-only or unreliable, or the tree holds a value
                that cannot be kept. Earlier checkpoints are as they were.
        """
        path = self._directory / f"step-{step:012d}.h5"
        with _explained(path, f"step {step} was not saved"):
            self._put(path, tree, step)
        self._prune(step)
        return path

    def rehearse(self, tree: Tree) -> None:
        """Write a checkpoint, read it back and remove it: what would fail later fails now.

        Args:
            tree: as for `save`; of about the size that a later one has.

        Raises:
            CheckpointError: as `save`.
        """
        path = self._directory / _TRIAL
        with _explained(path, "a trial before training was not saved"):
            self._put(path, tree, 0)
            self._remove_leftovers()  # the trial is one

    def _put(self, path: Path, tree: Tree, step: int) -> None:
        stamp = Stamp(step, self._run)
        make_directory(self._directory)
        self._remove_leftovers()
        with replacing(path) as handle:
            write(handle, tree, stamp)
            verify(handle, tree, stamp)

    def load_latest(self) -> tuple[int, Tree] | None:
        """Step and tree of the newest checkpoint that is whole, or None where there is no file.

        Raises:
            CheckpointError: there are files, but none is whole.
        """
        paths = self.paths()
        for path in reversed(paths):
            try:
                return _step(path), self._load(path, follow=False)
            except CheckpointError as error:
                self.warn(f"{error}; it is skipped")
        if paths:
            raise CheckpointError(
                f"{self._directory}: none of the {len(paths)} checkpoints can be read; "
                "start the run again in another directory"
            )
        return None

    def load(self, path: Path) -> Tree:
        """The tree of one checkpoint file.

        Raises:
            CheckpointError: the file is missing, truncated or changed, of a newer format, of another
                step than its name says, of another run, or holds what psopt does not write.
        """
        return self._load(Path(path), follow=True)

    def _load(self, path: Path, *, follow: bool) -> Tree:
        """The tree of a file; of a run's own directory no link is followed."""
        try:
            with open_regular(path, follow=follow) as handle:
                stamp, tree = read(handle)
        except (OSError, ValueError, RuntimeError, LookupError, TypeError) as error:
            # h5py raises all of them; the names in their texts are the file's
            raise CheckpointError(f"{path}: {one_line(str(error))}; {_REMEDY}") from error
        if _NAME.fullmatch(path.name) and _step(path) != stamp.step:
            text = f"it is the checkpoint of step {stamp.step}, under another's name"
        elif self._run and stamp.run and self._run != stamp.run:
            text = f"it is of another run ({stamp.run}; this one is {self._run})"
        else:
            return tree
        raise CheckpointError(f"{path}: {text}; {_REMEDY}")

    def paths(self) -> list[Path]:
        """The checkpoint files, oldest first."""
        if not self._directory.is_dir():
            return []
        found = [path for path in self._directory.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(found, key=_step)

    def _remove_leftovers(self) -> None:
        """Remove what saves that were killed have left behind."""
        for leftover in (*self._directory.glob(".step-*.tmp"), self._directory / _TRIAL):
            leftover.unlink(missing_ok=True)

    def _prune(self, step: int) -> None:
        kept = [path for path in self.paths() if _step(path) <= step][-self._keep :]
        for path in self.paths():
            if path not in kept:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:  # no reason to end a run whose newest one is safe
                    self.warn(f"{path}: an old checkpoint was not removed: {error}")


@contextmanager
def _explained(path: Path, failure: str) -> Iterator[None]:
    """What goes wrong in the block is told with the file and the remedy."""
    try:
        yield
    except TreeError as error:
        raise CheckpointError(f"{path}: {failure}: {error}") from error
    except (OSError, ValueError, RuntimeError) as error:  # h5py raises all three
        raise CheckpointError(
            f"{path}: {failure}: {error}; earlier checkpoints are kept; "
            "check the disk's space and permissions"
        ) from error


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else -1
