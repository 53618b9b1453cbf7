"""The inner product of short vectors, which is summed in one call."""

from __future__ import annotations

import pytest
import torch

from psopt.optim.inner import _rows, _total, dot


@pytest.mark.parametrize("size", [0, 1, 7, 500, 4095, 4096, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_short_vectors_give_the_bits_of_rows(size: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(size)
    a, b = (torch.randn(size, generator=generator).to(dtype) for _ in range(2))
    assert dot(a, b) == _total(_rows(a.double().mul_(b)))
