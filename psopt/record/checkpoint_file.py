"""One checkpoint file: its format, written, compared with what was to be written, and read.

A file is a 512-byte HDF5 user block, then HDF5. The block is the text below, padded with zeros; so
a flipped bit anywhere in the file is found before anything of it is used, and a file that has come
under another's name, or out of another run, is told::

    psopt checkpoint 1
    step <the coordinator's>
    run <the run's identity>
    sha256 <hex digest of the two lines above and of every byte after the block>
    bytes <how many those after the block are>
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import BinaryIO

import h5py

from psopt.record.tree import Tree, holds, read_tree, write_tree

_BLOCK = 512
_MAGIC = "psopt checkpoint"
_FORMAT = 1
_WINDOW = 1 << 22
_STAMP = re.compile(rf"{_MAGIC} {_FORMAT}\nstep (\d+)\nrun ([\w-]*)\n".encode())


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a checkpoint is of.

    Attributes:
        step: the coordinator's.
        run: identity of the run: letters, digits, ``-``; empty where it has none.
    """

    step: int
    run: str

    def text(self) -> str:
        """As the file has it."""
        return f"step {self.step}\nrun {self.run}\n"


def write(handle: BinaryIO, tree: Tree, stamp: Stamp) -> None:
    """Write a checkpoint into an empty file that is open for reading too.

    Raises:
        OSError: the disk is full, or failing.
        TreeError: the tree holds a value that cannot be kept.
    """
    medium = _Medium(handle)
    with h5py.File(medium, "w", userblock_size=_BLOCK, track_order=True) as file:
        write_tree(file, tree, check=medium.check)
    medium.check()
    block = _block(handle, stamp)  # of the bytes that are in the file, not of those meant for it
    handle.seek(0)
    handle.write(block)
    handle.flush()


def verify(handle: BinaryIO, tree: Tree, stamp: Stamp) -> None:
    """Compare a file that has just been written with what it is to hold, bit by bit.

    Its digest has been taken from the file, so this says that the digest is the right one.

    Raises:
        ValueError: it differs.
    """
    handle.seek(0)
    told = _STAMP.match(handle.read(_BLOCK))
    if told is None or _stamp(told) != stamp:
        raise ValueError("the header that was read back differs from what was written")
    with h5py.File(handle, "r") as file:
        if not holds(file, tree):
            raise ValueError("what was read back differs from what was written")


def read(handle: BinaryIO) -> tuple[Stamp, Tree]:
    """What an open checkpoint file holds, after a look at every byte of it.

    Raises:
        ValueError: it is truncated or changed, of a newer format, or no checkpoint.
    """
    handle.seek(0)
    block = handle.read(_BLOCK)
    told = _STAMP.match(block)
    if told is None:
        raise ValueError(_what_it_is(block))
    stamp = _stamp(told)
    if block != _block(handle, stamp):
        raise ValueError("truncated or damaged: its digest or its length differs from its header")
    with h5py.File(handle, "r") as file:
        return stamp, read_tree(file)


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


def _stamp(told: re.Match[bytes]) -> Stamp:
    return Stamp(int(told[1]), told[2].decode())


def _what_it_is(block: bytes) -> str:
    if len(block) < _BLOCK:
        return f"truncated: it has {len(block)} bytes"
    newer = re.match(rb"psopt checkpoint (\d+)\n", block)
    if newer and int(newer[1]) != _FORMAT:
        return f"of a newer format than {_FORMAT}; read it with a newer psopt"
    return "not a psopt checkpoint, or damaged at its start"


def _block(handle: BinaryIO, stamp: Stamp) -> bytes:
    """The user block that a file of these bytes has to have."""
    handle.seek(_BLOCK)
    digest, size = hashlib.sha256(stamp.text().encode()), 0
    while window := handle.read(_WINDOW):
        digest.update(window)
        size += len(window)
    text = f"{_MAGIC} {_FORMAT}\n{stamp.text()}sha256 {digest.hexdigest()}\nbytes {size}\n"
    return text.encode().ljust(_BLOCK, b"\0")
