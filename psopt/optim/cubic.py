"""The next trial of a line search from values and slopes at two steps.

A trial is (alpha, value, slope). The formulas are those of Nocedal & Wright, Numerical Optimization,
2006, eq. 3.57 to 3.59; which of them is taken, of More & Thuente, ACM TOMS 20, 1994, sec. 4.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Seen(NamedTuple):
    """A step, and phi and phi' there, all finite."""

    alpha: float
    value: float
    slope: float


def cubic(a: Seen, b: Seen) -> float | None:
    """Minimiser of the cubic through both (eq. 3.59); None where it has none."""
    width = b.alpha - a.alpha
    d1 = a.slope + b.slope - 3.0 * (b.value - a.value) / width
    scale = max(abs(d1), abs(a.slope), abs(b.slope))
    radicand = (d1 / scale) ** 2 - (a.slope / scale) * (b.slope / scale) if scale else -1.0
    if not radicand >= 0.0:
        return None
    d2 = math.copysign(scale * math.sqrt(radicand), width)
    below = b.slope - a.slope + 2.0 * d2
    return _finite(b.alpha - width * (b.slope + d2 - d1) / below) if below else None


def quadratic(a: Seen, b: Seen) -> float | None:
    """Minimiser of the parabola through both values and the slope at ``a`` (eq. 3.57)."""
    width = b.alpha - a.alpha
    below = 2.0 * (b.value - a.value - a.slope * width)
    return _finite(a.alpha - a.slope * width * width / below) if below else None


def secant(a: Seen, b: Seen) -> float | None:
    """Where the line through both slopes is zero."""
    below = b.slope - a.slope
    return _finite(b.alpha - b.slope * (b.alpha - a.alpha) / below) if below else None


def propose(low: Seen, trial: Seen, high: Seen | None, slack: float) -> float:
    """The next step, still without safeguards; infinite where only growing helps.

    Args:
        low: the best step before ``trial``.
        trial: the step told last.
        high: the other end of the bracket before ``trial``, if there is one.
        slack: values closer than this say nothing, only their slopes do.
    """
    outward = math.copysign(math.inf, trial.alpha - low.alpha)
    same = abs(trial.value - low.value) <= slack
    by_cubic = None if same else cubic(low, trial)
    by_secant = secant(low, trial)
    if trial.value > low.value and not same:  # the minimum is between, nearer to low
        by_parabola = quadratic(low, trial)
        if by_cubic is None or by_parabola is None:
            return _first(by_cubic, by_parabola, (low.alpha + trial.alpha) / 2.0)
        nearer = abs(by_cubic - low.alpha) < abs(by_parabola - low.alpha)
        return by_cubic if nearer else (by_cubic + by_parabola) / 2.0
    if trial.slope * low.slope < 0.0:  # between, and the longer step from the trial is the safer
        return _from(trial.alpha, by_cubic, by_secant, longer=True, other=low.alpha)
    if abs(trial.slope) < abs(low.slope):  # beyond the trial
        ahead = [
            step
            for step in (by_cubic, by_secant)
            if step is not None and (step - trial.alpha) * outward > 0.0
        ]
        if not ahead:
            return outward
        chosen = (min if high else max)(ahead, key=lambda step: abs(step - trial.alpha))
        if high is None:
            return chosen
        limit = trial.alpha + 0.66 * (high.alpha - trial.alpha)
        return min(chosen, limit) if outward > 0.0 else max(chosen, limit)
    if high is None:
        return outward
    return _first(cubic(trial, high), None, (trial.alpha + high.alpha) / 2.0)


def _finite(step: float) -> float | None:
    return step if math.isfinite(step) else None


def _first(one: float | None, two: float | None, otherwise: float) -> float:
    return one if one is not None else two if two is not None else otherwise


def _from(
    here: float, one: float | None, two: float | None, *, longer: bool, other: float
) -> float:
    if one is None or two is None:
        return _first(one, two, (here + other) / 2.0)
    return (max if longer else min)(one, two, key=lambda step: abs(step - here))
