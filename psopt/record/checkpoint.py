"""Checkpoints: one verified HDF5 file a step, and a store that keeps the last ones.

A file is a 512-byte HDF5 user block, then HDF5. The block is the text below, padded with zeros; so
a flipped bit anywhere in the file is found before anything of it is used::

    psopt checkpoint 1
    sha256 <hex digest of every byte after the block>
    bytes <how many they are>
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import h5py

from psopt.config import one_line
from psopt.reading import open_regular
from psopt.record.allowance import TreeError
from psopt.record.files import replacing
from psopt.record.tree import Tree, holds, read_tree, write_tree

_BLOCK = 512
_MAGIC = "psopt checkpoint"
_FORMAT = 1
_WINDOW = 1 << 22
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
    """

    def __init__(
        self, directory: Path, keep: int, warn: Callable[[str], None] = warn_of_checkpoint
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; keep at least 1 checkpoint")
        self._directory = Path(directory)
        self._keep, self._warn = keep, warn

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
        self._put(path, tree, f"step {step} was not saved")
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
        self._put(path, tree, "a trial before training was not saved")
        path.unlink()

    def _put(self, path: Path, tree: Tree, failure: str) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
            with replacing(path) as handle:
                _write(handle, tree)
                _verify(handle, tree)
        except TreeError as error:
            raise CheckpointError(f"{path}: {failure}: {error}") from error
        except (OSError, ValueError, RuntimeError) as error:  # h5py raises all three
            raise CheckpointError(
                f"{path}: {failure}: {error}; earlier checkpoints are kept; "
                "check the disk's space and permissions"
            ) from error

    def load_latest(self) -> tuple[int, Tree] | None:
        """Step and tree of the newest checkpoint that is whole, or None where there is no file.

        Raises:
            CheckpointError: there are files, but none is whole.
        """
        paths = self.paths()
        for path in reversed(paths):
            try:
                return _step(path), _load(path, follow=False)
            except CheckpointError as error:
                self._warn(f"{error}; it is skipped")
        if paths:
            raise CheckpointError(
                f"{self._directory}: none of the {len(paths)} checkpoints can be read; "
                "start the run again in another directory"
            )
        return None

    def load(self, path: Path) -> Tree:
        """The tree of one checkpoint file.

        Raises:
            CheckpointError: the file is missing, truncated or changed, of a newer format, or holds what
                psopt does not write.
        """
        return _load(Path(path), follow=True)

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
                    self._warn(f"{path}: an old checkpoint was not removed: {error}")


class _Medium:
    """The file under HDF5. After a failure it swallows writes, so that HDF5 can close in order."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self.error: OSError | None = None
        self.read = handle.read
        self.seek = handle.seek
        self.tell = handle.tell
        self.readinto = handle.readinto  # type: ignore[attr-defined]

    def write(self, data: memoryview) -> int:
        if self.error is None:
            try:
                self._handle.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def truncate(self, size: int) -> int:
        if self.error is None:
            try:
                self._handle.truncate(size)
            except OSError as error:
                self.error = error
        return size

    def flush(self) -> None:
        if self.error is None:
            try:
                self._handle.flush()
            except OSError as error:
                self.error = error

    def check(self) -> None:
        if self.error is not None:
            raise self.error


def _write(handle: BinaryIO, tree: Tree) -> None:
    medium = _Medium(handle)
    with h5py.File(medium, "w", userblock_size=_BLOCK, track_order=True) as file:
        write_tree(file, tree, check=medium.check)
    medium.check()
    block = _block(*_digest(handle))
    handle.seek(0)
    handle.write(block)
    handle.flush()


def _verify(handle: BinaryIO, tree: Tree) -> None:
    """Compare the file with the tree, bit by bit; the digest has just been taken from the file."""
    with h5py.File(handle, "r") as file:
        if not holds(file, tree):
            raise ValueError("what was read back differs from what was written")


def _load(path: Path, *, follow: bool) -> Tree:
    """The tree of a file; of a run's own directory no link is followed."""
    try:
        with open_regular(path, follow=follow) as handle:
            return _read(handle)
    except (OSError, ValueError, RuntimeError, LookupError, TypeError) as error:
        # h5py raises all of them; the names in their texts are the file's
        raise CheckpointError(f"{path}: {one_line(str(error))}; {_REMEDY}") from error


def _read(handle: BinaryIO) -> Tree:
    """The tree of an open checkpoint file, after a look at every byte of it."""
    handle.seek(0)
    block = handle.read(_BLOCK)
    if not block.startswith(f"{_MAGIC} {_FORMAT}\n".encode()):
        raise ValueError(_what_it_is(block))
    if block != _block(*_digest(handle)):
        raise ValueError("truncated or damaged: its digest or its length differs from its header")
    with h5py.File(handle, "r") as file:
        return read_tree(file)


def _what_it_is(block: bytes) -> str:
    if len(block) < _BLOCK:
        return f"truncated: it has {len(block)} bytes"
    if re.match(rb"psopt checkpoint \d+\n", block):
        return f"of a newer format than {_FORMAT}; read it with a newer psopt"
    return "not a psopt checkpoint, or damaged at its start"


def _digest(handle: BinaryIO) -> tuple[str, int]:
    """SHA-256 and number of the bytes after the user block."""
    handle.seek(_BLOCK)
    digest, size = hashlib.sha256(), 0
    while window := handle.read(_WINDOW):
        digest.update(window)
        size += len(window)
    return digest.hexdigest(), size


def _block(digest: str, size: int) -> bytes:
    return f"{_MAGIC} {_FORMAT}\nsha256 {digest}\nbytes {size}\n".encode().ljust(_BLOCK, b"\0")


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else -1
