"""What may touch the parameters."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from psopt.optim.finite import is_finite

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("place", [0, 500, 1000])
def test_one_bad_element(dtype: torch.dtype, bad: float, place: int) -> None:
    vector = torch.ones(1001, dtype=dtype)
    assert is_finite(vector)
    vector[place] = bad
    assert not is_finite(vector)


def test_infinities_that_cancel() -> None:
    assert not is_finite(torch.tensor([1.0, float("inf"), float("-inf")]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_only_the_sum_overflows(dtype: torch.dtype) -> None:
    large = torch.finfo(dtype).max
    assert is_finite(torch.full((100,), large, dtype=dtype))
    assert is_finite(torch.tensor([large, large, -large, -large], dtype=dtype))


def test_nothing_is_finite() -> None:
    assert is_finite(torch.empty(0))


@given(st.lists(st.floats(width=32), max_size=50))
def test_as_torch_says(values: list[float]) -> None:
    vector = torch.tensor(values, dtype=torch.float32)
    assert is_finite(vector) == bool(torch.isfinite(vector).all())
