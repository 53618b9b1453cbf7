"""Inner products that do not lose a float32 model's small differences.

A vector of 1e7 float32 elements summed in float32 has a relative error near 1e-5, more than a line
search can bear close to a minimum. Here blocks that fit a core's cache are widened first, and their
sums added in float64.

A block is also smaller than what torch divides among threads, and is computed on a buffer of its own:
the result depends neither on the number of threads nor on where in memory a vector begins.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 1 << 15
_BLOCK_OF_A_DEVICE = 1 << 24


def dot(a: Tensor, b: Tensor) -> float:
    """Inner product of two vectors (n,) of any float dtypes, products and sums in float64."""
    size = _block(a)
    wide = torch.empty(size, dtype=torch.float64, device=a.device)
    sums = [
        wide[: one.numel()].copy_(one).mul_(other).sum()
        for one, other in zip(torch.split(a, size), torch.split(b, size), strict=True)
    ]
    return float(torch.stack(sums).sum())


def add_dot(target: Tensor, vector: Tensor, scale: float, other: Tensor) -> float:
    """``target += scale * vector``, and the inner product of the result and ``other``.

    One pass over memory instead of two. Products are float32 for dtypes of at most 32 bits, sums of
    blocks float64: enough for a coefficient of a direction.
    """
    size = _block(target)
    dtype = torch.promote_types(target.dtype, torch.float32)
    wide = torch.empty(size, dtype=dtype, device=target.device)
    sums = []
    for here, there, seen in zip(
        torch.split(target, size), torch.split(vector, size), torch.split(other, size), strict=True
    ):
        add(here, there, scale)
        products = wide[: here.numel()]
        if here.dtype == dtype:
            torch.mul(here, seen, out=products)
        else:
            products.copy_(here).mul_(seen)
        sums.append(products.sum())
    return float(torch.stack(sums).double().sum())


def moments(
    new: Tensor, old: Tensor, new_gradient: Tensor, old_gradient: Tensor
) -> tuple[float, float, float]:
    """s's, s'y and y'y of s = new - old and y = new_gradient - old_gradient, in float64.

    The differences are rounded to the dtype of ``old``, as where they are stored.
    """
    size, dtype = _block(new), old.dtype
    vectors = (new, old, new_gradient, old_gradient)
    sums = []
    for x1, x0, g1, g0 in zip(*(torch.split(vector, size) for vector in vectors), strict=True):
        s, y = (x1 - x0).to(dtype).double(), (g1 - g0).to(dtype).double()
        sums.append(torch.stack([(s * s).sum(), (s * y).sum(), y.square_().sum()]))
    ss, sy, yy = torch.stack(sums).sum(0).tolist()
    return ss, sy, yy


def add(target: Tensor, vector: Tensor, scale: float) -> None:
    """``target += scale * vector``; a scale beyond the dtype is brought back to its largest value."""
    target.add_(vector, alpha=within(scale, target.dtype))


def within(scale: float, dtype: torch.dtype) -> float:
    """``scale``, no larger than the largest number of ``dtype``: torch refuses such factors."""
    most = torch.finfo(dtype).max
    return min(max(scale, -most), most)


def norm_1(a: Tensor) -> float:
    """Sum of absolute values, summed in float64."""
    size = _block(a)
    wide = torch.empty(size, dtype=torch.float64, device=a.device)
    sums = [wide[: part.numel()].copy_(part).abs_().sum() for part in torch.split(a, size)]
    return float(torch.stack(sums).sum())


def norm_max(a: Tensor) -> float:
    """Largest absolute value; NaN when there is one, 0 for no elements."""
    return float(torch.linalg.vector_norm(a, torch.inf)) if a.numel() else 0.0


def _block(a: Tensor) -> int:
    return min(_BLOCK if a.device.type == "cpu" else _BLOCK_OF_A_DEVICE, max(a.numel(), 1))
