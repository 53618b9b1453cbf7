"""DANE: rounds of approximate Newton steps, each worker on its own shard.

Shamir, Srebro & Zhang, "Communication-efficient distributed optimization using an approximate
Newton-type method", ICML 2014, figure 1. With F_i the objective of shard i::

    g   = grad F(w_t) = mean_i grad F_i(w_t)                                    first reduce
    w_i = argmin F_i(w) - <grad F_i(w_t) - eta g, w> + mu/2 |w - w_t|^2         (eq. 13)
    w_{t+1} = mean_i w_i                                                         second reduce

Where F is quadratic, w_{t+1} = w_t - eta mean_i (H_i + mu I)^{-1} g (eq. 16). The mean weighs shards by
their samples.

==================  ===============================================================
eta, mu             ``eta``, ``mu``
gamma               ``local.gamma``: a local solve stops at |grad h_i(w)| <= gamma eta |g|
p                   mean_i w_i - w_t
==================  ===============================================================

With ``safeguard`` a round is accepted where F falls enough along p, F(w_t + a p) <= F(w_t) + c1 a
<g, p>, a = 1, 1/2, ...; the gradient at the accepted point is that of the next round, so a round that
is accepted at once costs no message more. Otherwise mu is doubled and the local problems are solved
again; after an accepted full step mu is halved, never below its configured value (as in S-DANE,
Jiang, Rodomanov & Stich, 2024). Such a run ends where <g, p> is hidden by the rounding of F.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass as state
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.crew.base import LocalSolve, Tally
from psopt.optim.inner import dot
from psopt.schemes.base import SECTION, Context, Diverged
from psopt.schemes.exchange import descend
from psopt.schemes.local import NotNegative, Positive
from psopt.schemes.shards import GradientScheme, ShardState, norm

_DECREASE = 1e-4  # c1
_HALVINGS = 4  # of the step, before the round is given up
_REJECTIONS = 30  # rounds given up in a row, before the run is


@state
class DaneState(ShardState):
    """What DANE keeps beside its shards.

    Attributes:
        proximal: mu of the next round.
    """

    proximal: float = 0.0


@dataclass(frozen=True, config=SECTION, kw_only=True)
class DaneScheme(GradientScheme):
    """DANE and its kin: the mean way to the solutions of local problems."""

    eta: Annotated[Positive, Field(description="eta: factor on the global gradient (no unit)")] = (
        1.0
    )
    mu: Annotated[
        NotNegative,
        Field(description="mu: weight of the proximal term, in units of the objective's curvature"),
    ] = 0.0

    def init(self, context: Context) -> DaneState:
        """Nothing is measured yet."""
        context.publish()
        return DaneState(self.number(context), proximal=self.mu)

    def way(self, context: Context, state: DaneState, gradient: Tensor) -> Tensor:
        """The mean way, w_i - w_t, for the global gradient ``gradient`` (n,)."""
        context.lend(direction=gradient)
        version = context.server.version
        tasks = [
            LocalSolve(
                version,
                shard,
                share,
                self.local.method,
                base=state.base,
                mu=state.proximal,
                eta=self.eta,
                turn=state.round,
            )
            for shard, share in self.parts(context, state)
        ]
        return descend(context, tasks)


@dataclass(frozen=True, config=SECTION, kw_only=True)
class GuardedDane(DaneScheme):
    """DANE's rounds, with or without the safeguard."""

    safeguard: Annotated[
        bool,
        Field(description="Accept a round only where the objective falls enough; else a larger mu"),
    ] = False

    def round(self, context: Context, state: Any) -> tuple[Tally, dict[str, Any]] | None:
        """One round, measured at its end."""
        done = (self._guarded if self.safeguard else self._plain)(context, state)
        if done is None:
            return None
        tally, mu = done
        return tally, {"mu": mu, "gradient_norm": state.norm}

    def _plain(self, context: Context, state: DaneState) -> tuple[Tally, float]:
        """A round as it comes; the tally at its end, and its mu."""
        assert state.gradient is not None
        way = self.way(context, state, state.gradient)
        context.place(context.server.vectors[0] + way)
        return self.measure(context, state), state.proximal

    def _guarded(self, context: Context, state: DaneState) -> tuple[Tally, float] | None:
        """A round that lowers the objective; None, with ``state.over``, when there is none."""
        start = context.server.vectors[0].clone()
        objective, gradient, base = state.measured, state.gradient, state.base
        assert objective is not None
        assert gradient is not None
        hidden = torch.finfo(start.dtype).eps * abs(objective)
        blocked = False
        for _ in range(_REJECTIONS):
            slope, length = math.nan, 0.0
            with contextlib.suppress(Diverged):  # a larger mu may have a solution that is finite
                way = self.way(context, state, gradient)
                slope, length = dot(gradient, way), norm(way)
            if -hidden <= slope <= 0.0 and not blocked:
                state.over = (
                    "precision limit: rounding hides what a round would lower the objective"
                )
                return None
            if slope < 0.0:
                accepted = self._backtrack(context, state, start, way, objective, slope)
                if accepted is not None:
                    return accepted
                blocked = math.isnan(state.measured or 0.0)
            elif math.isnan(slope):
                blocked = True
            state.proximal = 2 * state.proximal or self._first_mu(context, gradient, length)
            context.place(start)
            state.measured, state.gradient, state.base = objective, gradient, base
        if blocked:
            raise Diverged(
                f"round {state.round + 1} finds no step at whose end the objective is finite, however "
                "short"
            )
        state.over = "no descent: the safeguard rejected every round"
        return None

    def _backtrack(
        self,
        context: Context,
        state: DaneState,
        start: Tensor,
        way: Tensor,
        objective: float,
        slope: float,
    ) -> tuple[Tally, float] | None:
        """The first step along ``way`` that lowers the objective enough; None where none does."""
        mu = state.proximal
        for halving in range(_HALVINGS + 1):
            step = 0.5**halving
            context.place(torch.add(start, way, alpha=step))
            tally = self.measure(context, state)
            assert state.measured is not None
            if state.measured <= objective + _DECREASE * step * slope:
                if not halving:
                    state.proximal = max(self.mu, mu / 2)
                return tally, mu
        return None

    def _first_mu(self, context: Context, gradient: Tensor, length: float) -> float:
        """A weight to begin with where none is configured: a tenth of the curvature that the way assumes."""
        curvature = norm(gradient) / length if length > 0.0 else math.inf
        return (
            0.1 * curvature if math.isfinite(curvature) and curvature > 0.0 else context.l2 or 1e-3
        )


@dataclass(frozen=True, config=SECTION, kw_only=True)
class Dane(GuardedDane):
    """Distributed approximate Newton rounds."""

    name: Annotated[Literal["dane"], Field(description="Chooses this scheme.")]
