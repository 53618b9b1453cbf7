"""Local problems of a shard, and the solvers for them.

::

    h(w) = f_S(w) + l2/2 |w|^2 - <c, w - a> + mu/2 |w - a|^2

Shamir, Srebro & Zhang, "Communication-efficient distributed optimization using an approximate
Newton-type method", ICML 2014, eq. 13: DANE's local problem has a = w_t and
c = grad F_i(w_t) - eta grad F(w_t), so that grad h(a) = eta grad F(w_t).

====================  =================================================================
lbfgs                 psopt.optim.lbfgs on h
cg                    linear CG on (H + (l2 + mu) I) d = -grad h(a), H the Hessian of f_S at a
                      (exact products by double backward); exact where f_S is quadratic
svrg                  w <- w - lr (grad f_b(w) - grad f_b(a) + grad h(a) + (l2 + mu)(w - a)),
                      Johnson & Zhang, NIPS 2013; the anchor stays at a
sgd                   w <- w - lr (grad f_b(w) - grad f_S(a) + grad h(a) + (l2 + mu)(w - a))
====================  =================================================================

f_b is the mean loss of batch b, times its size over the mean size of a batch: the mean over all b is
f_S, also where the last batch is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from psopt.optim.finite import is_finite
from psopt.optim.inner import add, dot, norm_max
from psopt.optim.lbfgs import LBFGS, LBFGSOptions
from psopt.optim.progress import lowest
from psopt.optim.solver import Status
from psopt.replica.batch_tasks import LocalMethod


@dataclass(frozen=True, slots=True)
class Local:
    """The local problem.

    Attributes:
        loss: ``loss(w, out) -> f_S(w)``; its gradient (n,) goes into ``out``.
        batch: ``batch(k, w, out)``: gradient of f_b at ``w`` for batch k, into ``out``.
        products: makes ``product(v) -> H v``, H the Hessian of f_S at the replica's parameters.
        batches: how many there are in the shard.
        start: a, (n,).
        shard_loss: f_S(a).
        shard_gradient: of f_S at a.
        gradient: of h at a.
        l2, mu: as above.
        seed: of the order of batches.
    """

    loss: Callable[[Tensor, Tensor], float]
    batch: Callable[[int, Tensor, Tensor], None]
    products: Callable[[], Callable[[Tensor], Tensor]]
    batches: int
    start: Tensor
    shard_loss: float
    shard_gradient: Tensor
    gradient: Tensor
    l2: float
    mu: float
    seed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """What came of a local problem.

    Attributes:
        way: w - a, (n,): NaN where h is not finite at a or all around it, or has no minimum.
        passes: over the shard that it took, beside the gradient at a.
        endless: h has no minimum.
    """

    way: Tensor
    passes: float
    endless: bool = False


def solve(local: Local, method: LocalMethod) -> Solution:
    """Minimise h."""
    square = dot(local.gradient, local.gradient)
    if not math.isfinite(local.shard_loss + square):
        return Solution(_nowhere(local), 0.0)
    if square == 0.0:  # a is the minimum
        return Solution(torch.zeros_like(local.start), 0.0)
    solvers = {"lbfgs": _lbfgs, "cg": _cg, "svrg": _stochastic, "sgd": _stochastic}
    return solvers[method.name](local, method)


def _nowhere(local: Local) -> Tensor:
    return torch.full_like(local.start, math.nan)


def _lbfgs(local: Local, method: LocalMethod) -> Solution:
    """L-BFGS on h until its gradient is small enough, or the passes are used up.

    It minimises h(w) - h(a) + f_S(a) = f_S(w) + <l2 a - c, w - a> + (l2 + mu)/2 |w - a|^2.
    """
    a, curb = local.start, local.l2 + local.mu
    linear = local.gradient - local.shard_gradient  # l2 a - c
    limit = method.gamma**2 * dot(local.gradient, local.gradient)
    most = method.passes + 1  # with the one at a, which took no pass
    options = LBFGSOptions(
        gradient_tolerance=0.0,
        lower_bound=lowest(abs(local.shard_loss)),  # <c, w - a> goes far below 0
        max_iterations=most,
        max_evaluations=most,
    )
    solver = LBFGS(a, options)
    solver.ask()
    solver.tell(local.shard_loss, local.gradient)
    way, out = torch.empty_like(a), torch.empty_like(a)
    small = seen = False
    while not (small or solver.done):
        point = solver.ask()
        torch.sub(point, a, out=way)
        value = local.loss(point, out) + dot(linear, way) + curb / 2 * dot(way, way)
        add(out.add_(linear), way, curb)
        solver.tell(value, out)
        seen = seen or (math.isfinite(value) and is_finite(out))
        small = dot(solver.gradient, solver.gradient) <= limit
    walled = solver.status is Status.NON_FINITE and not solver.iterations
    endless, passes = solver.status is Status.UNBOUNDED, solver.evaluations - 1
    if not seen or walled or endless:
        return Solution(_nowhere(local), passes, endless)
    end = solver.point if small else solver.best[1]
    return Solution(end - a, passes)


def _cg(local: Local, method: LocalMethod) -> Solution:
    """Hestenes & Stiefel 1952; Nocedal & Wright, algorithm 5.2, from d = 0.

    Where a direction has no positive curvature, as it may on networks, it ends as their algorithm
    7.1: with what it has, or with -grad h(a) when it has nothing.
    """
    curb = local.l2 + local.mu
    way = torch.zeros_like(local.start)
    # A power of two changes no digit, and keeps the products of a narrow dtype in its range.
    size = 2.0 ** (math.frexp(norm_max(local.gradient))[1] - 1)
    residual = local.gradient / -size
    direction = residual.clone()
    product = local.products()
    square = dot(residual, residual)
    limit = method.gamma**2 * square
    products = 0
    while square > limit and 2 * (products + 1) <= method.passes:
        image = product(direction)
        add(image, direction, curb)
        products += 1
        curvature = dot(direction, image)
        if not math.isfinite(curvature):
            return Solution(_nowhere(local), 2 * products)
        if not curvature > 0.0:
            if products == 1:
                way.copy_(direction)
            break
        alpha = square / curvature
        add(way, direction, alpha)
        add(residual, image, -alpha)
        before, square = square, dot(residual, residual)
        direction.mul_(square / before).add_(residual)
    return Solution(way.mul_(size), 2 * products)


def _stochastic(local: Local, method: LocalMethod) -> Solution:
    """SVRG with the anchor at a, or SGD: ``passes`` passes in a seeded order."""
    reduced = method.name == "svrg"
    cost = 2 if reduced else 1
    curb, a = local.l2 + local.mu, local.start
    w, out, anchor = a.clone(), torch.empty_like(a), torch.empty_like(a)
    epochs = method.passes // cost
    for epoch in range(epochs):
        generator = np.random.default_rng([*local.seed, epoch])
        for k in generator.permutation(local.batches):
            local.batch(int(k), w, out)
            if reduced:
                local.batch(int(k), a, anchor)
                out.sub_(anchor)
            else:
                out.sub_(local.shard_gradient)
            add(out.add_(local.gradient), w - a, curb)
            w.sub_(out, alpha=method.lr)
    return Solution(w.sub_(a), cost * epochs)
