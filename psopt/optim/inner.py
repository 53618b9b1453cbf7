"""Inner products that do not lose a float32 model's small differences.

A vector of 1e7 float32 elements summed in float32 has a relative error near 1e-5, more than a line
search can bear close to a minimum. Here rows of a few thousand products are summed by themselves, and
the sums of rows added in float64. Vectors are worked through in blocks that stay in the cache.

A row is summed by one thread, and on a buffer of its own: the result depends neither on the number
of threads nor on where in memory a vector begins.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_ROW = 1 << 12
_BLOCK = 1 << 19  # larger is slower by the cache, smaller by waiting for the other threads
_BLOCK_OF_A_DEVICE = 1 << 24


def dot(a: Tensor, b: Tensor) -> float:
    """Inner product of two vectors (n,) of any float dtypes, products and sums in float64."""
    size = _block(a)
    wide = torch.empty(size, dtype=torch.float64, device=a.device)
    if a.numel() < _ROW:  # the same bits at a third of the calls, which are all that it costs
        return float(wide[: a.numel()].copy_(a).mul_(b).sum())
    sums = []
    for one, other in zip(torch.split(a, size), torch.split(b, size), strict=True):
        sums += _rows(wide[: one.numel()].copy_(one).mul_(other))
    return _total(sums)


def norm(vector: Tensor) -> float:
    """Euclidean norm of (n,), summed in float64."""
    return math.sqrt(dot(vector, vector))


def add_dot(target: Tensor, vector: Tensor, scale: float, other: Tensor) -> float:
    """``target += scale * vector``, and the inner product of the result and ``other``.

    One pass over memory instead of two. Products are float32 for dtypes of at most 32 bits, and so
    are sums of rows: enough for a coefficient of a direction.
    """
    size = _block(target)
    dtype = torch.promote_types(target.dtype, torch.float32)
    wide = torch.empty(size, dtype=dtype, device=target.device)
    sums = []
    blocks = zip(*(torch.split(each, size) for each in (target, vector, other)), strict=True)
    for here, there, seen in blocks:
        add(here, there, scale)
        products = wide[: here.numel()]
        if here.dtype == dtype:
            torch.mul(here, seen, out=products)
        else:
            products.copy_(here).mul_(seen)
        sums += _rows(products)
    return _total(sums)


def moments(
    new: Tensor, old: Tensor, new_gradient: Tensor, old_gradient: Tensor
) -> tuple[float, float, float]:
    """s's, s'y and y'y of s = new - old and y = new_gradient - old_gradient, in float64.

    The differences are rounded to the dtype of the vectors, as where they are stored.
    """
    size = _block(new)
    wide = torch.empty((3, size), dtype=torch.float64, device=new.device)
    vectors = (new, old, new_gradient, old_gradient)
    ss, sy, yy = [], [], []
    for x1, x0, g1, g0 in zip(*(torch.split(each, size) for each in vectors), strict=True):
        s, y, products = wide[:, : x1.numel()]
        s.copy_(x1 - x0)
        y.copy_(g1 - g0)
        ss += _rows(torch.mul(s, s, out=products))
        sy += _rows(torch.mul(s, y, out=products))
        yy += _rows(y.square_())
    return _total(ss), _total(sy), _total(yy)


def add(target: Tensor, vector: Tensor, scale: float, out: Tensor | None = None) -> None:
    """``out = target + scale * vector``, by default in place.

    Sums of 16-bit floats are rounded once, from float32: torch rounds the last elements of a
    thread's share in another way than the others. A scale beyond the dtype that is computed in is
    brought back to its largest value.
    """
    out = target if out is None else out
    if target.dtype.itemsize > 2:
        torch.add(target, vector, alpha=within(scale, target.dtype), out=out)
        return
    size, scale = _block(target), within(scale, torch.float32)
    wide = torch.empty(size, dtype=torch.float32, device=target.device)
    blocks = zip(*(torch.split(each, size) for each in (target, vector, out)), strict=True)
    for here, there, to in blocks:
        to.copy_(wide[: here.numel()].copy_(there).mul_(scale).add_(here))


def within(scale: float, dtype: torch.dtype) -> float:
    """``scale``, no larger than the largest number of ``dtype``: torch refuses such factors."""
    most = torch.finfo(dtype).max
    return min(max(scale, -most), most)


def norm_1(a: Tensor) -> float:
    """Sum of absolute values, summed in float64."""
    size = _block(a)
    wide = torch.empty(size, dtype=torch.float64, device=a.device)
    sums = []
    for part in torch.split(a, size):
        sums += _rows(wide[: part.numel()].copy_(part).abs_())
    return _total(sums)


def norm_max(a: Tensor) -> float:
    """Largest absolute value; NaN when there is one, 0 for no elements."""
    if not a.numel():
        return 0.0
    least, most = torch.aminmax(a)
    return float(torch.maximum(-least, most))


def _rows(products: Tensor) -> list[Tensor]:
    """Sums (k,) of rows, and of what is left at the end."""
    whole = products.numel() // _ROW * _ROW
    return [products[:whole].view(-1, _ROW).sum(1), products[whole:].sum()[None]]


def _total(sums: list[Tensor]) -> float:
    return float(torch.cat(sums).double().sum())


def _block(a: Tensor) -> int:
    return min(_BLOCK if a.device.type == "cpu" else _BLOCK_OF_A_DEVICE, max(a.numel(), 1))
