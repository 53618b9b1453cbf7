"""How few rounds of averaged local Newton steps can do, on the quadratic model at the optimum.

There F - F* = 1/2 <e, H e> with e = w - w*, and with exact local solutions DANE's averaged way is -P g,
g = H e, P = mean_i (H_i + mu I)^-1 (Shamir, Srebro & Zhang, ICML 2014, eq. 16). A method that takes the
best step along it does steepest descent preconditioned by P. One that may also use all it has seen
before stays in e_0 + span{PH e_0, (PH)^2 e_0, ...}, where conjugate gradients, preconditioned by P, are
at the lowest F after every round.

So with one mu for all rounds, no choice of steps or memory needs fewer rounds on this model. Of a real
run it says what to expect and proves nothing: that begins where F is another function, its local
solutions are not exact, and its mu may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_MOST = 1000


@dataclass(frozen=True)
class Limit:
    """Rounds on the quadratic model, by the best mu of those that were asked for.

    Attributes:
        alone: with the best step along each averaged way.
        together: with conjugate directions.
    """

    alone: int
    together: int


def limit(
    hessian: Array,
    shards: Sequence[Array],
    weights: Sequence[float],
    error: Array,
    gap: float,
    mus: Sequence[float] = (0.0,),
) -> Limit:
    """The fewest rounds.

    Args:
        hessian: H of the objective at the optimum, (n, n).
        shards: H_i, the penalty's part included, (n, n) each.
        weights: of the shards, their parts of the samples.
        error: e at the start, (n,).
        gap: F - F* that is wanted.
        mus: values of mu.
    """
    eye, found = np.eye(len(error)), []
    for mu in mus:
        pairs = zip(shards, weights, strict=True)
        p: Any = sum(weight * np.linalg.inv(shard + mu * eye) for shard, weight in pairs)
        found.append([_rounds(hessian, p, error, gap, memory) for memory in (False, True)])
    alone, together = np.min(found, axis=0)
    return Limit(int(alone), int(together))


def _rounds(h: Array, p: Array, error: Array, gap: float, memory: bool) -> int:
    """Rounds of steepest descent, or of conjugate gradients; no more than are counted."""
    e, direction = error.copy(), np.zeros_like(error)
    before: Any = np.inf
    for done in range(_MOST):
        g = h @ e
        if e @ g / 2 <= gap:
            return done
        way = p @ g
        now = g @ way
        direction = way + (now / before if memory else 0.0) * direction
        before = now
        e = e - (g @ direction) / (direction @ h @ direction) * direction
    return _MOST
