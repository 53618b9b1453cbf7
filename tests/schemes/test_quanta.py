from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from psopt.schemes.quanta import Scale

DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])
ENTRIES = st.floats(1e-250, 1e250)
SLICES = st.integers(1, 200_000)


@given(ENTRIES, SLICES, DTYPES)
def test_a_sum_never_overflows(largest: float, slices: int, dtype: torch.dtype) -> None:
    scale = Scale.around(largest, slices, dtype)
    assert largest * 512 <= scale.limit
    assert Fraction(scale.limit) / Fraction(scale.quanta[0]) * slices < 2**62
    for coarse, fine in zip(scale.quanta, scale.quanta[1:], strict=False):
        assert Fraction(coarse) / 2 / Fraction(fine) * slices < 2**62


@given(ENTRIES, SLICES, DTYPES)
def test_entries_as_expected_are_resolved(largest: float, slices: int, dtype: torch.dtype) -> None:
    scale = Scale.around(largest, slices, dtype)
    assert scale.better(largest) is None
    assert scale.better(0.0) is None
    bits = 53 if dtype == torch.float64 else 27
    assert scale.quanta[-1] <= largest * 2.0**-bits


@given(ENTRIES, ENTRIES, SLICES, DTYPES)
def test_a_better_scale_is_found(
    expected: float, largest: float, slices: int, dtype: torch.dtype
) -> None:
    """In a few steps, each of which depends on the largest entry alone."""
    scale, guess = Scale.around(expected, slices, dtype), None
    for _ in range(100):
        if (guess := scale.better(largest)) is None:
            break
        scale = Scale.around(guess, slices, dtype)
    assert guess is None
    assert largest <= scale.limit


@pytest.mark.parametrize("jump", [1e6, 1e7, 1e8])
def test_one_step_up_or_down(jump: float) -> None:
    for factor in (jump, 1 / jump):
        scale = Scale.around(1.0, 128, torch.float32)
        guess = scale.better(factor)
        assert guess is not None
        assert Scale.around(guess, 128, torch.float32).better(factor) is None


def test_the_ends_of_the_range() -> None:
    for largest in (5e-324, 1e-300, 2.0**1000):
        for slices in (1, 1000):
            scale = Scale.around(largest, slices, torch.float64)
            assert all(0.0 < quantum < math.inf for quantum in scale.quanta)
            assert largest <= scale.limit < math.inf
            assert scale.better(largest) is None
