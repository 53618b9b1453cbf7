"""Test functions of More, Garbow & Hillstrom (ACM TOMS 7, 1981) and their minima, in torch.

Each is a function of a vector; torch gives the gradient. A problem's name carries its size where
the function has any.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """A function, its start and the minimum that it leads to (which may be a local one)."""

    name: str
    function: Function
    start: tuple[float, ...]
    minimum: float


def oracle(function: Function) -> Callable[[Tensor], tuple[float, Tensor]]:
    """Loss and gradient of a function, by backpropagation."""

    def evaluate(point: Tensor) -> tuple[float, Tensor]:
        leaf = point.detach().clone().requires_grad_()
        with torch.enable_grad():
            value = function(leaf)
            (gradient,) = torch.autograd.grad(value, leaf)
        return value.item(), gradient

    return evaluate


def _table(x: Tensor, *values: float) -> Tensor:
    return torch.tensor(values, dtype=x.dtype)


def _squares(*residuals: Tensor) -> Tensor:
    return torch.stack(residuals).square().sum()


def rosenbrock(x: Tensor) -> Tensor:
    odd, even = x[0::2], x[1::2]
    return (100.0 * (even - odd**2) ** 2 + (1.0 - odd) ** 2).sum()


def freudenstein_roth(x: Tensor) -> Tensor:
    a, b = x
    return _squares(-13 + a + ((5 - b) * b - 2) * b, -29 + a + ((b + 1) * b - 14) * b)


def brown_badly_scaled(x: Tensor) -> Tensor:
    a, b = x
    return _squares(a - 1e6, b - 2e-6, a * b - 2)


def beale(x: Tensor) -> Tensor:
    a, b = x
    return _squares(1.5 - a * (1 - b), 2.25 - a * (1 - b**2), 2.625 - a * (1 - b**3))


def helical_valley(x: Tensor) -> Tensor:
    a, b, c = x
    theta = torch.atan(b / a) / (2 * math.pi)
    if a.item() < 0:
        theta = theta + 0.5
    return _squares(10 * (c - 10 * theta), 10 * (torch.sqrt(a**2 + b**2) - 1), c)


def bard(x: Tensor) -> Tensor:
    y = _table(
        x, 0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39
    )
    u = torch.arange(1, 16, dtype=x.dtype)
    v = 16 - u
    return (y - (x[0] + u / (v * x[1] + torch.minimum(u, v) * x[2]))).square().sum()


def box_3d(x: Tensor) -> Tensor:
    t = 0.1 * torch.arange(1, 11, dtype=x.dtype)
    a, b, c = x
    return ((-t * a).exp() - (-t * b).exp() - c * ((-t).exp() - (-10 * t).exp())).square().sum()


def powell_singular(x: Tensor) -> Tensor:
    a, b, c, d = x[0::4], x[1::4], x[2::4], x[3::4]
    terms = (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4
    return terms.sum()


def wood(x: Tensor) -> Tensor:
    a, b, c, d = x
    left = 100 * (b - a**2) ** 2 + (1 - a) ** 2 + 90 * (d - c**2) ** 2 + (1 - c) ** 2
    return left + 10 * (b + d - 2) ** 2 + 0.1 * (b - d) ** 2


def kowalik_osborne(x: Tensor) -> Tensor:
    y = _table(
        x, 0.1957, 0.1947, 0.1735, 0.1600, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246
    )
    u = _table(x, 4.0, 2.0, 1.0, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625)
    return (y - x[0] * (u**2 + u * x[1]) / (u**2 + u * x[2] + x[3])).square().sum()


def biggs_exp6(x: Tensor) -> Tensor:
    t = 0.1 * torch.arange(1, 14, dtype=x.dtype)
    y = (-t).exp() - 5 * (-10 * t).exp() + 3 * (-4 * t).exp()
    fit = x[2] * (-t * x[0]).exp() - x[3] * (-t * x[1]).exp() + x[5] * (-t * x[4]).exp()
    return (fit - y).square().sum()


def watson(x: Tensor) -> Tensor:
    n = x.numel()
    t = torch.arange(1, 30, dtype=x.dtype)[:, None] / 29
    j = torch.arange(n, dtype=x.dtype)
    slope = (j[1:] * x[1:] * t ** (j[1:] - 1)).sum(1)
    value = (x * t**j).sum(1)
    residuals = slope - value**2 - 1
    return residuals.square().sum() + x[0] ** 2 + (x[1] - x[0] ** 2 - 1) ** 2


def penalty_i(x: Tensor) -> Tensor:
    return 1e-5 * (x - 1).square().sum() + (x.square().sum() - 0.25) ** 2


def variably_dimensioned(x: Tensor) -> Tensor:
    j = torch.arange(1, x.numel() + 1, dtype=x.dtype)
    tilt = (j * (x - 1)).sum()
    return (x - 1).square().sum() + tilt**2 + tilt**4


def trigonometric(x: Tensor) -> Tensor:
    n = x.numel()
    i = torch.arange(1, n + 1, dtype=x.dtype)
    return (n - x.cos().sum() + i * (1 - x.cos()) - x.sin()).square().sum()


def chebyquad(x: Tensor) -> Tensor:
    n = x.numel()
    shifted = 2 * x - 1
    before, now = torch.ones_like(x), shifted
    total = torch.zeros((), dtype=x.dtype)
    for i in range(1, n + 1):
        integral = -1 / (i**2 - 1) if i % 2 == 0 else 0.0
        total = total + (now.mean() - integral) ** 2
        before, now = now, 2 * shifted * now - before
    return total


PROBLEMS = (
    Problem("Rosenbrock", rosenbrock, (-1.2, 1.0), 0.0),
    Problem("Freudenstein-Roth", freudenstein_roth, (0.5, -2.0), 48.9842),
    Problem("Brown badly scaled", brown_badly_scaled, (1.0, 1.0), 0.0),
    Problem("Beale", beale, (1.0, 1.0), 0.0),
    Problem("Helical valley", helical_valley, (-1.0, 0.0, 0.0), 0.0),
    Problem("Bard", bard, (1.0, 1.0, 1.0), 8.21487e-3),
    Problem("Box 3D", box_3d, (0.0, 10.0, 20.0), 0.0),
    Problem("Powell singular", powell_singular, (3.0, -1.0, 0.0, 1.0), 0.0),
    Problem("Wood", wood, (-3.0, -1.0, -3.0, -1.0), 0.0),
    Problem("Kowalik-Osborne", kowalik_osborne, (0.25, 0.39, 0.415, 0.39), 3.07505e-4),
    Problem("Biggs EXP6", biggs_exp6, (1.0, 2.0, 1.0, 1.0, 1.0, 1.0), 5.65565e-3),
    Problem("Watson 6", watson, (0.0,) * 6, 2.28767e-3),
    Problem("Rosenbrock 100", rosenbrock, (-1.2, 1.0) * 50, 0.0),
    Problem("Rosenbrock 1000", rosenbrock, (-1.2, 1.0) * 500, 0.0),
    Problem("Powell singular 100", powell_singular, (3.0, -1.0, 0.0, 1.0) * 25, 0.0),
    Problem("Penalty I 4", penalty_i, (1.0, 2.0, 3.0, 4.0), 2.24997e-5),
    Problem(
        "Variably dimensioned 10",
        variably_dimensioned,
        tuple(1 - j / 10 for j in range(1, 11)),
        0.0,
    ),
    Problem("Trigonometric 10", trigonometric, (0.1,) * 10, 2.79506e-5),
    Problem("Chebyquad 8", chebyquad, tuple(j / 9 for j in range(1, 9)), 3.51687e-3),
)
"""The rows of the comparison with scipy."""
