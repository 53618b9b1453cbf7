"""Inner products: as exact as the vectors, whatever their dtype, place and the threads."""

from __future__ import annotations

import math

import pytest
import torch

from psopt.optim.inner import add, add_dot, dot, moments, norm_1, norm_max, within

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
SIZES = [0, 1, 5, 4096, 40_000, 600_003]


def pair(size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(size)
    return torch.randn(size, generator=source).to(dtype), torch.randn(size, generator=source).to(
        dtype
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_as_exact_as_fsum(size: int, dtype: torch.dtype) -> None:
    a, b = pair(size, dtype)
    exact = math.fsum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))
    assert dot(a, b) == pytest.approx(exact, abs=1e-11)
    assert norm_1(a) == pytest.approx(math.fsum(map(abs, a.tolist())))
    assert norm_max(a) == max(map(abs, a.tolist()), default=0.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_add_dot_is_both(size: int, dtype: torch.dtype) -> None:
    a, b = pair(size, dtype)
    target = a.clone()
    product = add_dot(target, b, 0.5, a)
    wide = torch.promote_types(dtype, torch.float32)
    assert torch.equal(target, a.to(wide).add(b.to(wide), alpha=0.5).to(dtype))
    assert product == pytest.approx(dot(target, a), rel=1e-5, abs=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_moments_are_those_of_the_differences(dtype: torch.dtype) -> None:
    (a, b), d = pair(40_000, dtype), pair(40_001, dtype)[0][1:]
    s, y = a - b, d - a
    assert moments(a, b, d, a) == pytest.approx((dot(s, s), dot(s, y), dot(y, y)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_neither_place_nor_threads_show(dtype: torch.dtype) -> None:
    a, b = pair(600_003, dtype)
    expected = dot(a, b), add_dot(a.clone(), b, 0.3, b)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for offset in (0, 1, 3):
            moved = torch.empty(a.numel() + 8, dtype=dtype)[offset : offset + a.numel()].copy_(a)
            assert (dot(moved, b), add_dot(moved, b, 0.3, b)) == expected


def test_nan_is_seen() -> None:
    bad = torch.tensor([1.0, math.nan, 2.0])
    assert math.isnan(norm_max(bad))
    assert math.isnan(dot(bad, torch.zeros(3)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_beyond_the_dtype(dtype: torch.dtype) -> None:
    assert within(math.inf, dtype) == torch.finfo(dtype).max == -within(-1e999, dtype)
    vector = torch.zeros(2, dtype=dtype)
    add(vector, torch.zeros(2, dtype=dtype), 1e305)
    assert torch.equal(vector, torch.zeros(2, dtype=dtype))
