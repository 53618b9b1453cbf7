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

With ``safeguard`` the full step is taken where F falls enough along p and is not far beyond its minimum
there: F(w_t + p) <= F(w_t) + c1 <g, p> and <grad F(w_t + p), p> <= c2 |<g, p>|. Small shards, which
underestimate the curvature, fail by the second condition. Then a Wolfe search (``psopt.optim.wolfe``)
looks for a shorter one. The gradient at the accepted point is that of the next round, so a step that is
accepted at once costs no message more. Where the search finds none, mu is doubled, or becomes a tenth
of |g| / |p| where it is 0, and the local problems are solved again; after an accepted full step mu is
halved, never below its configured value (as in S-DANE, Jiang, Rodomanov & Stich, 2024). Such a run ends
where <g, p> is hidden by the rounding of F.

With ``conjugate`` the rounds have a memory, as in DANE-HB (Yuan & Li, "On convergence of distributed
approximate Newton methods", JMLR 21, 2020), but nothing is to be tuned: the averaged way d_t is
the preconditioned gradient of nonlinear conjugate gradients (Hestenes & Stiefel's beta, never negative)::

    p_t = d_t + beta p_{t-1},    beta = max(0, -<d_t, y> / <p_{t-1}, y>),    y = g_t - g_{t-1}

The search along p_t, from the full step on, goes to |<grad F, p>| <= c2 |<g, p>| with c2 = 1e-3 on either
side: its gradients are cheap beside the local solves. Where p_t is hardly downhill, or no step is found
along it, d_t itself is searched before mu is raised; a raised mu is halved after every accepted step. It
pays off where shards know little of each other, so that full steps are not accepted anyway, and where mu
makes them too short.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass as state
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.crew.base import LocalSolve, Tally
from psopt.optim.inner import dot, norm
from psopt.optim.progress import Options
from psopt.optim.wolfe import Outcome, Rules, Search
from psopt.schemes.base import SECTION, Context, Diverged
from psopt.schemes.exchange import descend
from psopt.schemes.gradient_rounds import HIDDEN, GradientScheme, hides
from psopt.schemes.local import NotNegative, Positive
from psopt.schemes.shards import ShardState

_DECREASE = 1e-4  # c1
_LOOSE = 0.5, 5  # c2, and steps before the round is given up
_EXACT = 1e-3, 10  # the same where the next direction relies on the search
_DOWNHILL = 0.1  # least part of the averaged way's slope that a bent one keeps
_WALL = "no step is found at whose end the objective is finite"
_NO_SOLUTION = "local solutions are not finite, however large mu"
_REJECTIONS = 30  # rounds given up in a row, before the run is


@state
class DaneState(ShardState):
    """What DANE keeps beside its shards.

    Attributes:
        proximal: mu of the next round.
        direction: p of the last round, (n,); None where there is none to go on from.
        direction_gradient: g at the start of that round, (n,).
    """

    proximal: float = 0.0
    direction: Tensor | None = None
    direction_gradient: Tensor | None = None


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
        return self.fresh(context, DaneState, proximal=self.mu)

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
        Field(
            description="Accept a full step only where the objective falls enough and does not rise "
            "steeply at its end; else search for a shorter one, or take a larger mu"
        ),
    ] = False
    conjugate: Annotated[
        bool,
        Field(
            description="Search along the averaged way plus a part of the last direction, as nonlinear "
            "conjugate gradients do; needs safeguard"
        ),
    ] = False

    @model_validator(mode="after")
    def _searches(self) -> Self:
        if self.conjugate and not self.safeguard:
            raise ValueError("conjugate needs safeguard: true, whose search finds the steps")
        return self

    def round(self, context: Context, state: Any) -> tuple[Tally, dict[str, Any]] | None:
        """One round, measured at its end."""
        done = (self._guarded if self.safeguard else self._plain)(context, state)
        if done is None:
            return None
        tally, mu, step = done
        return tally, {"mu": mu, "step_size": step, "gradient_norm": state.norm}

    def _plain(self, context: Context, state: DaneState) -> tuple[Tally, float, float]:
        """A round as it comes; the tally at its end, mu and step."""
        assert state.gradient is not None
        way = self.way(context, state, state.gradient)
        context.place(context.server.vectors[0] + way)
        return self.measure(context, state), state.proximal, 1.0

    def _guarded(self, context: Context, state: DaneState) -> tuple[Tally, float, float] | None:
        """A round that lowers the objective; None, with ``state.over``, when there is none."""
        start = context.server.vectors[0].clone()
        objective, gradient, base = state.measured, state.gradient, state.base
        assert objective is not None
        assert gradient is not None
        trouble = ""
        for _ in range(_REJECTIONS):
            slope, length = math.nan, 0.0
            with contextlib.suppress(Diverged):  # a larger mu may have a solution that is finite
                way = self.way(context, state, gradient)
                slope, length = dot(gradient, way), norm(way)
            if hides(state, slope) and not trouble:
                state.over = HIDDEN
                return None
            if slope < 0.0:
                for p, downhill in self._directions(state, way, slope):
                    accepted = self._descend(context, state, start, p, downhill)
                    if accepted is not None:
                        if self.conjugate:
                            state.direction, state.direction_gradient = p, gradient
                        return accepted
                    trouble = _WALL if math.isnan(state.measured or 0.0) else ""
                    context.place(start)
                    state.measured, state.gradient, state.base = objective, gradient, base
            elif slope != 0.0:
                trouble = _NO_SOLUTION if math.isnan(slope) else ""
            state.proximal = 2 * state.proximal or self._first_mu(context, gradient, length)
            state.direction = None
            if context.tickets.finished:
                return None
        if trouble:
            raise Diverged(f"round {state.round + 1}: {trouble}")
        state.over = "no descent: the safeguard rejected every round"
        return None

    def _directions(
        self, state: DaneState, way: Tensor, slope: float
    ) -> list[tuple[Tensor, float]]:
        """What to search along, first choice first, with the objective's slope there."""
        plain = [(way, slope)]
        if state.direction is None:
            return plain
        assert state.gradient is not None
        assert state.direction_gradient is not None
        change = state.gradient - state.direction_gradient
        curvature = dot(state.direction, change)
        beta = -dot(way, change) / curvature if curvature > 0.0 else 0.0
        if not 0.0 < beta < math.inf:
            return plain
        bent = torch.add(way, state.direction, alpha=beta)
        downhill = dot(state.gradient, bent)
        return [(bent, downhill), *plain] if downhill <= _DOWNHILL * slope else plain

    def _descend(
        self, context: Context, state: DaneState, start: Tensor, way: Tensor, slope: float
    ) -> tuple[Tally, float, float] | None:
        """A step along ``way``, as the module's docstring says; None where none lowers F enough."""
        mu, objective = state.proximal, state.measured
        flat, trials = _EXACT if self.conjugate else _LOOSE
        assert objective is not None

        def at(step: float) -> tuple[Tally, float, float]:
            context.place(torch.add(start, way, alpha=step))
            tally = self.measure(context, state)
            assert state.measured is not None
            assert state.gradient is not None
            return tally, state.measured, dot(state.gradient, way)

        tally, value, ahead = at(1.0)
        rules = Rules(_DECREASE, flat, trials, Options().rounding_of(start.dtype))
        search, step = Search(rules, objective, slope, 1.0), 1.0
        search.tell(value, ahead)
        enough = value <= objective + _DECREASE * slope and ahead <= -flat * slope
        if enough and not self.conjugate:  # a full step may be short of the minimum
            state.proximal = max(self.mu, mu / 2)
            return tally, mu, 1.0
        while search.outcome is Outcome.SEARCHING:
            step = search.alpha
            tally, value, ahead = at(step)
            search.tell(value, ahead)
        if search.outcome is Outcome.FAILED:
            return None
        if search.outcome is Outcome.LOWER and search.alpha != step:
            tally, _, _ = at(search.alpha)  # once more: it was the lowest
        if self.conjugate:
            state.proximal = max(self.mu, mu / 2)
        return tally, mu, search.alpha

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
