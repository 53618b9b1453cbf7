"""Permissions that bind root too, so that tests of read-only directories run everywhere."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION = 0x20080522
_OVERRIDE = 1 << 1  # CAP_DAC_OVERRIDE


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Set(ctypes.Structure):
    _fields_ = tuple((n, ctypes.c_uint32) for n in ("effective", "permitted", "inheritable"))


@contextmanager
def permissions_hold() -> Iterator[None]:
    """This thread gives up the right to pass over permissions for a while, where it has it."""
    libc, sets = ctypes.CDLL(None, use_errno=True), (_Set * 2)()
    header = _Header(_VERSION, 0)
    assert libc.capget(ctypes.byref(header), sets) == 0
    before = sets[0].effective
    sets[0].effective = before & ~_OVERRIDE
    assert libc.capset(ctypes.byref(header), sets) == 0
    try:
        yield
    finally:
        sets[0].effective = before
        assert libc.capset(ctypes.byref(header), sets) == 0
