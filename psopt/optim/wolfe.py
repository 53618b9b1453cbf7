"""The line search that all solvers share: plain floats, asked for a step and told value and slope.

On phi(alpha) = f(x + alpha d), with phi'(0) < 0, it looks for a step with

    phi(alpha) <= phi(0) + c1 alpha phi'(0)   and   |phi'(alpha)| <= c2 |phi'(0)|

(Nocedal & Wright, Numerical Optimization, 2006, eq. 3.7), or, where values differ by rounding only,
the approximate conditions of Hager & Zhang (SIAM J. Optim. 16, 2005, eq. 4.1), which need slopes
alone: (2 c1 - 1) phi'(0) >= phi'(alpha) >= c2 phi'(0) and |phi(alpha) - phi(0)| <= eps |phi(0)|.

It brackets a minimum by growing the step, then narrows the bracket with cubic and quadratic steps,
chosen as by More & Thuente (ACM TOMS 20, 1994, sec. 4) and kept off the ends of the bracket.

==========  ===========================================================
c1, c2      Rules.decrease, Rules.curvature
eps         Rules.rounding
low, high   ends of the bracket; `low` is the best step so far, 0 at first
==========  ===========================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from psopt.optim.cubic import Seen, propose

_NEAREST = 0.01  # a trial keeps this part of the bracket away from its ends
_SHRINK = 0.66  # two trials narrow the bracket to this part, or the next one halves it
_NARROW = 1e-3  # a bracket this narrow holds a kink, or no better step
_SHORTEST = 1e-300
_STRETCH = (1.1, 10.0)  # least and most growth of the first stretch; the most rises tenfold each


class Outcome(StrEnum):
    """How a search stands, or how it ended."""

    SEARCHING = "searching"
    WOLFE = "wolfe"  # the step told last meets the conditions
    LOWER = "lower"  # none does; `alpha` is the step of the lowest value
    FAILED = "failed"  # no step with a sufficiently lower value was seen


@dataclass(frozen=True)
class Rules:
    """What a search accepts, and what it may spend.

    Args:
        decrease: c1, in (0, c2).
        curvature: c2, in (c1, 1).
        evaluations: most trials of one search, at least 1.
        rounding: relative error of a value; differences below it are not seen.
        longest: largest step, where the dtype of the vectors has an end.
    """

    decrease: float = 1e-4
    curvature: float = 0.9
    evaluations: int = 20
    rounding: float = 2e-15
    longest: float = 1e300


@dataclass
class _State:
    """The search between two trials."""

    start: Seen
    low: Seen
    high: Seen | None
    wall: float | None  # instead of `high`: a step where phi is not finite
    alpha: float
    outcome: Outcome = Outcome.SEARCHING
    evaluations: int = 0
    stretches: int = 0
    promise: float = 0.0
    widths: list[float] = field(default_factory=lambda: [1e300, 1e300])


class Search:
    """One line search.

    Args:
        rules: what it accepts.
        value: phi(0).
        slope: phi'(0), negative.
        alpha: first trial, positive.
    """

    def __init__(self, rules: Rules, value: float, slope: float, alpha: float) -> None:
        self._rules = rules
        start = Seen(0.0, value, slope)
        alpha = min(max(alpha, _SHORTEST), rules.longest)
        self._now = _State(start, start, None, None, alpha)

    @property
    def alpha(self) -> float:
        """The step to try; once it has ended, the step to take."""
        return self._now.alpha

    @property
    def outcome(self) -> Outcome:
        """How the search stands."""
        return self._now.outcome

    @property
    def value(self) -> float:
        """Phi(0)."""
        return self._now.start.value

    @property
    def slope(self) -> float:
        """Phi'(0)."""
        return self._now.start.slope

    @property
    def blocked(self) -> bool:
        """Whether values that are not finite are what keeps the step short."""
        return self._now.wall is not None

    @property
    def promise(self) -> float:
        """How much lower phi should get, by the parabolas through phi(0), phi'(0) and higher trials.

        After a search without a lower point, a promise that is no more than rounding says that
        there was nothing to be found; a larger one was broken.
        """
        return self._now.promise

    def tell(self, value: float, slope: float) -> None:
        """Take in phi and phi' at ``alpha``; they need not be finite."""
        now = self._now
        now.evaluations += 1
        if math.isfinite(value) and math.isfinite(slope):
            trial = Seen(now.alpha, value, slope)
            if self._accepts(trial):
                now.outcome = Outcome.WOLFE
                return
            step = self._narrow(trial)
        else:
            now.high, now.wall = None, now.alpha
            # Far beyond the domain at first, perhaps; nearer to its edge once a trial was inside.
            step = now.low.alpha + (0.5 if now.low.alpha else 0.1) * (now.wall - now.low.alpha)
        if now.evaluations >= self._rules.evaluations or self._is_narrow() or step == now.alpha:
            self._end(now.alpha)
        else:
            now.alpha = step

    @property
    def _slack(self) -> float:
        return self._rules.rounding * abs(self._now.start.value)

    def _accepts(self, trial: Seen) -> bool:
        start, c1, c2 = self._now.start, self._rules.decrease, self._rules.curvature
        if trial.value <= start.value + c1 * trial.alpha * start.slope:
            return abs(trial.slope) <= -c2 * start.slope
        near = abs(trial.value - start.value) <= self._slack
        return near and (2.0 * c1 - 1.0) * start.slope >= trial.slope >= c2 * start.slope

    def _narrow(self, trial: Seen) -> float:
        """Put a finite trial into the bracket; the next step."""
        now, start = self._now, self._now.start
        step = propose(now.low, trial, now.high, self._slack)
        enough = start.value + self._rules.decrease * trial.alpha * start.slope + self._slack
        outward = trial.alpha - now.low.alpha
        if trial.value > start.value + self._slack:
            fall = -start.slope * trial.alpha
            rise = (trial.value - start.value) / fall if fall else math.inf
            now.promise = max(now.promise, 0.25 * fall / (1.0 + rise))
        if trial.value > enough or trial.value > now.low.value + self._slack:
            now.high, now.wall = trial, None
        else:
            if trial.slope * outward >= 0.0:
                now.high, now.wall = now.low, None
            elif now.high is None and now.wall is None:
                return self._stretched(step, trial)
            now.low = trial
        return self._kept_inside(step)

    def _stretched(self, step: float, trial: Seen) -> float:
        """A step beyond all so far: each may be further away by a larger factor."""
        now = self._now
        least, most = _STRETCH
        width = trial.alpha - now.low.alpha
        most *= 10.0 ** min(now.stretches, 30)
        now.stretches += 1
        now.low = trial
        step = max(step, trial.alpha + least * width)
        return min(step, trial.alpha + most * width, self._rules.longest)

    def _kept_inside(self, step: float) -> float:
        """``step`` off the ends of the bracket, or the middle where it narrows too slowly."""
        now = self._now
        end = now.high.alpha if now.high is not None else now.wall
        assert end is not None
        width = abs(end - now.low.alpha)
        before, now.widths = now.widths[0], [now.widths[1], width]
        if width > _SHRINK * before:
            return (now.low.alpha + end) / 2.0
        first, last = sorted((now.low.alpha, end))
        return min(max(step, first + _NEAREST * width), last - _NEAREST * width)

    def _is_narrow(self) -> bool:
        now = self._now
        end = now.high.alpha if now.high is not None else now.wall
        return end is not None and abs(end - now.low.alpha) <= _NARROW * now.low.alpha

    def _end(self, last: float) -> None:
        """Without a Wolfe point: the best step that was seen, if it is lower at all."""
        now = self._now
        lower = now.low.value < now.start.value
        now.outcome = Outcome.LOWER if lower else Outcome.FAILED
        now.alpha = now.low.alpha if lower else last

    def state(self) -> dict[str, Any]:
        """Plain values only."""
        state = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in vars(self._now).items()
        }
        return {**state, "outcome": self._now.outcome.value}

    @classmethod
    def load(cls, rules: Rules, state: Mapping[str, Any]) -> Search:
        """The search that ``state`` came from."""
        search = cls(rules, 0.0, -1.0, 1.0)
        seen = {key: Seen(*state[key]) for key in ("start", "low")}
        high = None if state["high"] is None else Seen(*state["high"])
        outcome = Outcome(state["outcome"])
        search._now = _State(**{**state, **seen, "high": high, "outcome": outcome})
        return search
