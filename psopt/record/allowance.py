"""What is accepted of a checkpoint's HDF5 objects before any value of them is read.

HDF5 can do much more than psopt writes: values in other files, filters that are loaded as plug-ins,
objects with many names, shapes without values. None of it is needed here, and all of it is refused.
"""

from __future__ import annotations

import math
from typing import Any

import h5py

MOST_LEVELS = 32
"""So deep may groups be nested; psopt nests about six."""

_LAYOUTS = {h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS}


class TreeError(ValueError):
    """A value that cannot be kept, or a file that does not hold a tree."""


class Allowance:
    """Keeps account of what has been read of one file: each object once, and no more bytes than it has.

    Args:
        group: any group of the file.
    """

    def __init__(self, group: h5py.Group) -> None:
        self._left = int(group.file.id.get_filesize())
        self._seen = {_address(group)}

    def member(self, group: h5py.Group, name: str) -> Any:
        """The group or dataset that a plain link of ``group`` leads to, for the first time.

        Raises:
            TreeError: it is something else.
        """
        where = f"{group.name}/{name}".replace("//", "/")
        try:
            plain = isinstance(group.get(name, getlink=True), h5py.HardLink)
        except TypeError:  # a kind of link that h5py does not know
            plain = False
        if not plain:
            raise TreeError(f"{where}: a link to elsewhere; psopt writes none")
        try:
            item = group[name]
        except KeyError as error:
            raise TreeError(f"{where}: {error.args[0]}") from error
        if not isinstance(item, h5py.Group | h5py.Dataset):
            raise TreeError(f"{where}: neither group nor dataset; psopt writes no other")
        address = _address(item)
        if address in self._seen:
            raise TreeError(f"{where}: has two names, or holds itself; psopt writes a tree")
        self._seen.add(address)
        if isinstance(item, h5py.Group) and where.count("/") > MOST_LEVELS:
            raise TreeError(f"{where}: nested more than {MOST_LEVELS} levels deep")
        return item

    def claim(self, item: h5py.Dataset) -> None:
        """See that the values lie in this file as they are, and that there are so many.

        Raises:
            TreeError: they do not.
        """
        made = item.id.get_create_plist()
        if made.get_layout() not in _LAYOUTS or made.get_external_count():
            raise TreeError(f"{item.name}: not a plain dataset; psopt writes no other")
        if made.get_nfilters():
            raise TreeError(f"{item.name}: passes through a filter; psopt writes none")
        if item.shape is None:
            raise TreeError(f"{item.name}: has no values")
        size = math.prod(item.shape) * item.id.get_type().get_size()
        if size > self._left:
            raise TreeError(
                f"{item.name}: claims {size} bytes of values, but the file has {self._left} that are "
                "not another's"
            )
        self._left -= size


def _address(item: h5py.Group | h5py.Dataset) -> int:
    return int(h5py.h5o.get_info(item.id).addr)
