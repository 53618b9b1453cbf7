"""GIANT: globally improved approximate Newton directions.

Wang, Roosta-Khorasani, Xu & Mahoney, "GIANT: globally improved approximate Newton method for
distributed optimization", NeurIPS 2018, algorithm 1 and section 4.2 (line search)::

    g   = grad F(w_t)                             first reduce
    p_i = H_i^{-1} g                              by CG on shard i, H_i its Hessian with the penalty's
    p   = mean_i p_i                              second reduce
    w_{t+1} = w_t - a p                           a: that of the lowest F of a grid, tried in one round

The paper takes the largest step of the grid whose decrease is sufficient. All its values of F are known
after the one round that it costs, and the lowest of them is never worse in that round: on small shards
the full step may pass that test and lead nearly nowhere.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.crew.base import LocalSolve, Tally
from psopt.optim.inner import dot
from psopt.schemes.base import SECTION, Context, Diverged
from psopt.schemes.exchange import descend, probe
from psopt.schemes.gradient_rounds import HIDDEN, GradientScheme, hides
from psopt.schemes.local import LocalConfig, Solving
from psopt.schemes.shards import ShardState

_NO_STEP = "no descent: no step of the grid lowers the objective"
_GRID = tuple(4.0 * 0.5**k for k in range(12))


def _newton(local: LocalConfig) -> LocalConfig:
    """Directions H_i^{-1} g, which of the solvers CG on exact products alone finds."""
    if local.solver != "cg":
        raise ValueError(f"giant solves H_i p = g: solver must be cg, not {local.solver}")
    return local


@dataclass(frozen=True, config=SECTION, kw_only=True)
class Giant(GradientScheme):
    """Averaged local Newton directions, and a step from a grid that is tried in one round."""

    name: Annotated[Literal["giant"], Field(description="Chooses this scheme.")]
    local: Annotated[Solving, AfterValidator(_newton)] = LocalConfig(
        solver="cg", gamma=1e-2, passes=100
    )

    def round(self, context: Context, state: Any) -> tuple[Tally, dict[str, Any]] | None:
        """Direction, grid, and the gradient at the new point."""
        gradient = state.gradient
        way = self._way(context, state, gradient)
        step = self._choose(context, state, way, state.measured)
        if step is None:
            hidden = hides(
                state, dot(gradient, way) / 2
            )  # of a quadratic the half is what it falls by
            state.over = HIDDEN if hidden else _NO_STEP
            return None
        context.place(context.server.vectors[0].add(way, alpha=step))
        tally = self.measure(context, state)
        return tally, {"step_size": step, "gradient_norm": state.norm}

    def _way(self, context: Context, state: ShardState, gradient: Tensor) -> Tensor:
        """-p."""
        context.lend(direction=gradient)
        version = context.server.version
        tasks = [
            LocalSolve(
                version, shard, share, self.local.method, base=state.base, eta=1.0, turn=state.round
            )
            for shard, share in self.parts(context, state)
        ]
        return descend(context, tasks)

    def _choose(
        self, context: Context, state: ShardState, way: Tensor, objective: float
    ) -> float | None:
        """A step of the grid; None: none lowers the objective.

        Raises:
            Diverged: at none of them is the objective finite.
        """
        w = context.server.vectors[0].clone()
        context.lend(direction=way)
        ww, wp, pp = dot(w, w), dot(w, way), dot(way, way)
        tried = []
        losses = probe(context, self.parts(context, state), _GRID)
        for step, loss in zip(_GRID, losses, strict=True):
            value = loss + context.l2 / 2 * (ww + 2 * step * wp + step * step * pp)
            if math.isfinite(value):
                tried.append((value, step))
        if not tried:
            raise Diverged(
                f"round {state.round + 1}: the objective is finite at no step of the grid"
            )
        lowest, step = min(tried)
        return step if lowest < objective else None
