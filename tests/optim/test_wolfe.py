"""The line search on functions of one number."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psopt.optim.cubic import Seen, cubic, quadratic, secant
from psopt.optim.wolfe import Outcome, Rules, Search

Phi = Callable[[float], tuple[float, float]]
LINES: dict[str, Phi] = {
    "parabola": lambda a: ((a - 3.0) ** 2, 2.0 * (a - 3.0)),
    "quartic": lambda a: ((a - 1e3) ** 4, 4.0 * (a - 1e3) ** 3),
    "tiny": lambda a: (1e-12 * (a - 1e-5) ** 2, 2e-12 * (a - 1e-5)),
    "waves": lambda a: (0.1 * a * a - math.sin(a), 0.2 * a - math.cos(a)),
    "wall": lambda a: (-a - math.log(2 - a), 1 / (2 - a) - 1) if a < 2 else (math.nan, math.nan),
    "pole": lambda a: (1 / (2 - a) - a, (2 - a) ** -2 - 1) if a < 2 else (math.inf, 0.0),
    "flat": lambda a: (-math.tanh(a), math.tanh(a) ** 2 - 1),
}


def search_along(phi: Phi, rules: Rules, alpha: float) -> tuple[Search, int]:
    search, count = Search(rules, *phi(0.0), alpha), 0
    while search.outcome is Outcome.SEARCHING:
        count += 1
        search.tell(*phi(search.alpha))
    return search, count


@pytest.mark.parametrize("phi", LINES.values(), ids=LINES)
@pytest.mark.parametrize("alpha", [1e-8, 1e-3, 1.0, 1.99, 50.0, 1e5])
@pytest.mark.parametrize("curvature", [0.1, 0.9])
def test_wolfe_conditions_hold(phi: Phi, alpha: float, curvature: float) -> None:
    if phi is LINES["pole"]:
        curvature = 0.9  # phi'(0) = -3/4, and the pole is close
    rules = Rules(curvature=curvature, evaluations=40)
    search, count = search_along(phi, rules, alpha)
    assert search.outcome is Outcome.WOLFE
    (value, slope), (first, descent) = phi(search.alpha), phi(0.0)
    assert value <= first + rules.decrease * search.alpha * descent + 1e-14 * abs(first)
    assert abs(slope) <= curvature * abs(descent)
    assert count <= 25


@given(
    st.floats(1e-6, 1e6),
    st.floats(1e-6, 1e6),
    st.floats(1e-6, 1e6),
    st.floats(-1e6, 1e6),
    st.sampled_from([0.1, 0.4, 0.9]),
)
def test_any_parabola_in_a_few_trials(
    minimiser: float, curvature: float, alpha: float, offset: float, c2: float
) -> None:
    """One or two trials more than it takes to come near."""

    def phi(a: float) -> tuple[float, float]:
        return offset + 0.5 * curvature * a * (a - 2 * minimiser), curvature * (a - minimiser)

    search, count = search_along(phi, Rules(curvature=c2), alpha)
    assert search.outcome is Outcome.WOLFE
    assert count <= 4 + abs(math.log10(minimiser / alpha))


def test_no_end_is_found_within_the_cap() -> None:
    search, count = search_along(lambda a: (-a, -1.0), Rules(longest=3e38), 1.0)
    assert search.outcome is Outcome.LOWER
    assert search.alpha == 3e38
    assert count <= 20


@pytest.mark.parametrize("cap", [1, 2, 5])
def test_cap(cap: int) -> None:
    search, count = search_along(
        lambda a: (abs(a - 0.3), 1.0 if a > 0.3 else -1.0), Rules(evaluations=cap), 1.0
    )
    assert count <= cap
    assert search.outcome in {Outcome.LOWER, Outcome.FAILED}


def test_kink_ends_at_the_best_step() -> None:
    def phi(a: float) -> tuple[float, float]:
        return abs(a - 0.3) + 1.0, 1.0 if a > 0.3 else -1.0

    search, count = search_along(phi, Rules(), 1.0)
    assert search.outcome is Outcome.LOWER
    assert search.alpha == pytest.approx(0.3, rel=1e-2)
    assert count < 20


def test_never_finite() -> None:
    search, count = search_along(lambda a: (1.0, -1.0) if a == 0 else (math.nan, 0.0), Rules(), 1.0)
    assert (search.outcome, search.blocked, count) == (Outcome.FAILED, True, 20)


def test_uphill_breaks_its_promise() -> None:
    search, _ = search_along(lambda a: (a, -1.0), Rules(), 1.0)
    assert search.outcome is Outcome.FAILED
    assert search.promise > 0.1


def test_slopes_decide_where_values_are_rounded() -> None:
    """Values in steps of 1e-3: the slope finds the minimum of the parabola all the same."""

    def phi(a: float) -> tuple[float, float]:
        return 1e4 + round(1e3 * 1e-5 * (a - 3.0) ** 2) / 1e3, 2e-5 * (a - 3.0)

    search, count = search_along(phi, Rules(rounding=1e-6), 1.0)
    assert search.outcome is Outcome.WOLFE
    assert count <= 3


@pytest.mark.parametrize("phi", LINES.values(), ids=LINES)
@pytest.mark.parametrize("alpha", [1e-3, 50.0])
def test_state_goes_on_as_the_search(phi: Phi, alpha: float) -> None:
    rules = Rules(curvature=0.01)
    search = Search(rules, *phi(0.0), alpha)
    while search.outcome is Outcome.SEARCHING:
        other = Search.load(rules, json.loads(json.dumps(search.state(), allow_nan=False)))
        assert other.alpha == search.alpha
        search.tell(*phi(search.alpha))
        other.tell(*phi(other.alpha))
        assert other.state() == search.state()


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.1, 5), st.floats(-3, 3))
def test_interpolation_of_what_it_interpolates(a: float, b: float, lead: float, at: float) -> None:
    def parabola(x: float) -> Seen:
        return Seen(x, lead * (x - at) ** 2, 2 * lead * (x - at))

    if abs(a - b) < 0.1:
        return
    for formula in (cubic, quadratic, secant):
        assert formula(parabola(a), parabola(b)) == pytest.approx(at, abs=1e-6)
