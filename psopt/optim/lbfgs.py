"""L-BFGS: the limited-memory BFGS method.

Liu & Nocedal, "On the limited memory BFGS method for large scale optimization", Math. Programming
45, 1989; Nocedal & Wright, Numerical Optimization, 2006, algorithm 7.5::

    p_k = -H_k g_k                      two-loop recursion over the last m pairs (psopt.optim.pairs)
    x_{k+1} = x_k + alpha_k p_k         Wolfe search from alpha = 1 (psopt.optim.wolfe)
    s_k = x_{k+1} - x_k, y_k = g_{k+1} - g_k

Without a pair the direction is -g and the first trial min(1, 1 / |g|_1).

Memory: 2m vectors of pairs, and x_k, g_k, p_k, the trial and the best point: (2m + 5) n elements,
beside the gradient that is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from psopt.optim.descent import Descent, Options
from psopt.optim.pairs import Pairs


@dataclass(frozen=True)
class LBFGSOptions(Options):
    """Hyper-parameters of L-BFGS.

    Args:
        memory: m, pairs kept, at least 1.
        skip: pairs with s'y <= skip |s| |y| are left out.
        damp: first bring pairs with s'y < 0.2 s'Bs up to that by Powell's rule, B = I / gamma.
    """

    memory: int = 10
    skip: float = 1e-8
    damp: bool = False


class LBFGS(Descent):
    """The solver; see ``psopt.optim.solver`` for what it promises.

    Args:
        start: first point (n,), any float dtype, any device; copied.
        options: hyper-parameters.
    """

    def __init__(self, start: Tensor, options: LBFGSOptions | None = None) -> None:
        options = options or LBFGSOptions()
        super().__init__(start, options)
        self._pairs = Pairs(options.memory, self._x, skip=options.skip, damp=options.damp)

    def _direct(self, source: Tensor) -> bool:
        self._d.copy_(source).neg_()
        self._pairs.apply(self._d)
        return len(self._pairs) > 0

    def _first_step(self, slope: float) -> float | None:
        return 1.0 if len(self._pairs) else None

    def _learn(self, new: Tensor, gradient: Tensor) -> None:
        self._pairs.add(new, self._x, gradient, self._g)

    def _forget(self) -> None:
        self._pairs.clear()

    def _memory(self) -> dict[str, Any]:
        return self._pairs.state()

    def _recall(self, memory: Mapping[str, Any]) -> None:
        self._pairs.load(memory)
