"""Which power of two is the quantum of a sum, so that int64 neither overflows nor rounds visibly.

An entry that a slice adds to the mean is written as whole numbers a_1, a_2, ...::

    entry = a_1 q_1 + a_2 q_2 + rest,   |rest| <= q_last / 2

with one quantum for dtypes of up to 32 bits, and two for float64. How large entries are is known from
the evaluation before; ``Scale.better`` says where that was wrong, and depends on nothing but the
entries themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

_BITS = 61  # of an int64 sum
_ROOM = 10  # powers of two by which an entry may exceed the largest one of before
_RAISE = 20  # powers of two by which the scale rises where that is not enough
_LEAST, _MOST = -900, 1000  # exponents of the limit
_RESOLVED = {
    2: 30,
    4: 30,
    8: 53,
}  # bits of the largest entry that are to be kept, by the item's size
_SPARE = 6  # powers of two by which the entries may always fall


@dataclass(frozen=True, slots=True)
class Scale:
    """How entries become whole numbers.

    Attributes:
        size: exponent of the largest entry that is expected.
        depth: bits of one entry in one quantum.
        count: number of quanta.
        bits: of the largest entry that are to be kept.
    """

    size: int
    depth: int
    count: int
    bits: int

    @classmethod
    def around(cls, largest: float, slices: int, dtype: torch.dtype) -> Scale:
        """For entries of about ``largest``, added up over ``slices`` slices."""
        depth = _BITS - (slices - 1).bit_length()
        count = 2 if dtype.itemsize > 4 else 1
        bits = min(_RESOLVED[dtype.itemsize], count * depth - _ROOM - _SPARE)
        return cls(_within(math.frexp(largest)[1]), depth, count, bits)

    @property
    def limit(self) -> float:
        """The largest entry that fits."""
        return math.ldexp(1.0, self.size + _ROOM)

    @property
    def quanta(self) -> tuple[float, ...]:
        """Powers of two, the coarse one first."""
        exponents = [self.size + _ROOM - (k + 1) * self.depth for k in range(self.count)]
        return tuple(math.ldexp(1.0, max(exponent, -1020)) for exponent in exponents)

    def better(self, largest: float) -> float | None:
        """What the scale should have been made for, given the largest entry; None when it will do."""
        if largest > self.limit:
            return math.ldexp(0.5, self.size + _RAISE)
        size = _within(math.frexp(largest)[1])
        kept = size - (self.size + _ROOM - self.count * self.depth)
        return largest if largest > 0.0 and size < self.size and kept < self.bits else None


def _within(exponent: int) -> int:
    return min(max(exponent, _LEAST), _MOST - _ROOM)
