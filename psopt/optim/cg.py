"""Nonlinear conjugate gradients: Polak-Ribiere+ and Hager-Zhang.

::

    d_0 = -g_0,  d_{k+1} = -g_{k+1} + beta_k d_k,  y_k = g_{k+1} - g_k

    PR+  beta_k = max(0, y_k'g_{k+1} / g_k'g_k)
    HZ   beta_k = max(eta_k, (y_k - 2 d_k |y_k|^2 / d_k'y_k)' g_{k+1} / d_k'y_k)
         eta_k  = -1 / (|d_k| min(eta, |g_k|)),  eta = 0.01

PR+: Nocedal & Wright, Numerical Optimization, 2006, eq. 5.44 and 5.45. HZ: Hager & Zhang, "A new
conjugate gradient method with guaranteed descent and an efficient line search", SIAM J. Optim. 16,
2005, eq. 1.3, 1.5 and 1.6.

Both restart from -g when successive gradients are far from orthogonal, |g_{k+1}'g_k| >= 0.2
|g_{k+1}|^2 (Powell, Math. Programming 12, 1977; Nocedal & Wright, eq. 5.52), and when the direction
does not descend.

The first trial of a search expects the loss to fall as much as in the last step, alpha = 2 (f_{k-1} -
f_k) / |phi'(0)| (Nocedal & Wright, eq. 3.60), or, when it did not fall, as much as its slope promised
then. Without a last step it is min(1, 1 / |g|_1).

beta is computed when a step is taken, from gradients of one objective. After ``rebase`` it is used
with the new objective's gradient. Memory: x, g, d, the trial and the best point, 5n elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from torch import Tensor

from psopt.optim.descent import Descent, Options
from psopt.optim.inner import dot, within

_ETA = 0.01
_FAR_FROM_ORTHOGONAL = 0.2
_EXPECT = 2.02  # a little more than the last fall, so that a Newton-like step is not cut short


class Beta(StrEnum):
    """How much of the last direction is kept."""

    PR_PLUS = "pr+"
    HAGER_ZHANG = "hager-zhang"


@dataclass(frozen=True)
class CGOptions(Options):
    """Hyper-parameters of nonlinear CG.

    Args:
        beta: the formula.
        curvature: c2; CG needs a closer search than L-BFGS, 0.1 to 0.4.
    """

    beta: Beta = Beta.PR_PLUS
    curvature: float = 0.1


class CG(Descent):
    """The solver; see ``psopt.optim.solver`` for what it promises.

    Args:
        start: first point (n,), any float dtype, any device; copied.
        options: hyper-parameters.
    """

    def __init__(self, start: Tensor, options: CGOptions | None = None) -> None:
        options = options or CGOptions()
        super().__init__(start, options)
        self._formula = _FORMULAS[Beta(options.beta)]
        self._beta: float | None = None
        self._reach: float | None = None  # |alpha phi'(0)| of the last step

    def _direct(self, source: Tensor) -> bool:
        beta, self._beta = self._beta, None
        if not beta:
            self._d.copy_(source).neg_()
            return False
        self._d.mul_(within(beta, self._d.dtype)).sub_(source)
        return True

    def _first_step(self, slope: float) -> float | None:
        if self._reach is None:
            return None
        fall = self._now.fall
        return (_EXPECT * fall if fall > 0.0 else self._reach) / -slope

    def _learn(self, new: Tensor, gradient: Tensor) -> None:
        assert self._search is not None
        gg, overlap = dot(self._g, self._g), dot(self._g, gradient)
        y = self._g.sub_(gradient).neg_()  # in place: the old gradient is not used again
        beta = self._formula(y, gradient, self._d, gg)
        restart = abs(overlap) >= _FAR_FROM_ORTHOGONAL * dot(gradient, gradient)
        self._beta = beta if math.isfinite(beta) and not restart else None
        self._reach = self._now.alpha * abs(self._search.slope)

    def _forget(self) -> None:
        self._beta = self._reach = None

    def _memory(self) -> dict[str, Any]:
        return {"beta": self._beta, "reach": self._reach}

    def _recall(self, memory: Mapping[str, Any]) -> None:
        self._beta, self._reach = memory["beta"], memory["reach"]


def _pr_plus(y: Tensor, gradient: Tensor, d: Tensor, gg: float) -> float:
    return max(0.0, dot(y, gradient) / gg) if gg else 0.0


def _hager_zhang(y: Tensor, gradient: Tensor, d: Tensor, gg: float) -> float:
    dy = dot(d, y)
    if dy == 0.0:
        return 0.0
    beta = (dot(y, gradient) - 2.0 * dot(y, y) * dot(d, gradient) / dy) / dy
    return max(beta, -1.0 / (math.sqrt(dot(d, d)) * min(_ETA, math.sqrt(gg))))


_FORMULAS = {Beta.PR_PLUS: _pr_plus, Beta.HAGER_ZHANG: _hager_zhang}
