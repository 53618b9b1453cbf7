"""What goes wrong in practice: for all solvers no NaN, no hang, the best point, the right status."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from psopt.optim.lbfgs import LBFGS, LBFGSOptions
from psopt.optim.solver import Status
from tests.optim.functions import oracle, rosenbrock
from tests.optim.solvers import SOLVERS, Make, run

START = torch.tensor([-1.2, 1.0], dtype=torch.float64)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
STUCK = {Status.LINE_SEARCH_FAILED, Status.PRECISION_LIMIT}


@pytest.fixture(params=SOLVERS)
def make(request: pytest.FixtureRequest) -> Make:
    return SOLVERS[request.param]


@pytest.mark.parametrize("dtype", DTYPES)
def test_start_at_the_optimum(make: Make, dtype: torch.dtype) -> None:
    solver = make(torch.ones(4, dtype=dtype))
    assert run(solver, oracle(rosenbrock)) == [0.0]
    assert solver.status is Status.CONVERGED_GRADIENT
    assert torch.equal(solver.best[1], torch.ones(4, dtype=dtype))


@pytest.mark.parametrize("nudge", [1e-15, 1e-9])
def test_start_next_to_the_optimum(make: Make, nudge: float) -> None:
    solver = make(torch.ones(4, dtype=torch.float64) + nudge)
    run(solver, oracle(rosenbrock))
    assert solver.status in {Status.CONVERGED_GRADIENT, *STUCK}
    assert solver.best[0] <= 1e-16
    assert solver.evaluations < 200


UNBOUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "x": lambda x: x.sum(),
    "1e-6 x": lambda x: 1e-6 * x.sum(),
    "-1e6 x": lambda x: -1e6 * x.sum(),
    "x^3": lambda x: (x**3).sum(),
    "-x^2": lambda x: -x.square().sum(),
    "-exp x": lambda x: -x.exp().sum(),
    "saddle": lambda x: x[0] ** 2 - x[1] ** 2,
}


# A slope of a million is no number of float16.
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, d) for n in UNBOUNDED for d in DTYPES if (n, d) != ("-1e6 x", torch.float16)],
)
def test_unbounded_below(make: Make, name: str, dtype: torch.dtype) -> None:
    function = UNBOUNDED[name]
    solver = make(torch.tensor([-0.5, 0.25], dtype=dtype))
    losses = [loss for loss in run(solver, oracle(function)) if math.isfinite(loss)]
    assert solver.status is Status.UNBOUNDED
    assert solver.best[0] == min(losses)
    assert solver.evaluations < 150


@pytest.mark.parametrize("size", [1e-3, 1e-8, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_noise_on_the_loss(make: Make, size: float, seed: int) -> None:
    def noisy(point: Tensor) -> tuple[float, Tensor]:
        loss, gradient = oracle(rosenbrock)(point)
        return loss + size * torch.rand((), generator=noise).item(), gradient

    noise = torch.Generator().manual_seed(seed)
    solver = make(START, max_evaluations=1000)
    losses = run(solver, noisy)
    assert solver.status in {Status.CONVERGED_GRADIENT, *STUCK}
    assert solver.best[0] == min(losses)
    assert rosenbrock(solver.best[1]) < 100.0 * size


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_never_finite(make: Make, bad: float) -> None:
    solver = make(START)
    assert len(run(solver, lambda point: (bad, torch.full_like(point, bad)))) == 1
    assert solver.status is Status.NON_FINITE
    assert math.isnan(solver.best[0])
    assert torch.equal(solver.best[1], START)


def test_gradient_never_finite(make: Make) -> None:
    solver = make(START)
    run(solver, lambda point: (1.0, torch.tensor([1.0, math.nan], dtype=point.dtype)))
    assert (solver.status, solver.evaluations) == (Status.NON_FINITE, 1)


@pytest.mark.parametrize("size", [1e200, 1e308])
def test_gradient_too_large_for_a_slope(make: Make, size: float) -> None:
    solver = make(START)
    run(solver, lambda point: (1.0, torch.full_like(point, size)))
    assert (solver.status, solver.evaluations) == (Status.NON_FINITE, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_finite_at_the_start_only(make: Make, bad: float) -> None:
    solver = make(START)
    run(solver, lambda x: (1.0 if torch.equal(x, START) else bad, torch.ones_like(x)))
    assert solver.status in {Status.NON_FINITE, Status.PRECISION_LIMIT}
    assert solver.best[0] == 1.0
    assert torch.equal(solver.best[1], START)
    assert solver.evaluations < 50


def test_trials_beyond_the_domain(make: Make) -> None:
    """The first step overshoots to where the loss is NaN: the search comes back."""
    solver = make(torch.tensor([1e-3, 2.0], dtype=torch.float64))
    run(solver, oracle(lambda x: (x - x.log()).sum()))
    assert solver.status is Status.CONVERGED_GRADIENT
    assert solver.best[0] == pytest.approx(2.0)


KINKS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "|x|": (lambda x: x.abs().sum(), 0.0),
    "weighted": (lambda x: x[0].abs() + 3.0 * x[1].abs(), 0.0),
    "max": (lambda x: torch.maximum(x[0], -2.0 * x[0]) + x[1] ** 2, 0.0),
    "away from a point of the grid": (lambda x: (x - 0.1234567).abs().sum() + 7.0, 7.0),
}


@pytest.mark.parametrize(("function", "minimum"), KINKS.values(), ids=KINKS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradient_jumps_at_a_kink(
    make: Make, function: Callable[[Tensor], Tensor], minimum: float, dtype: torch.dtype
) -> None:
    solver = make(torch.tensor([-1.2, 0.9], dtype=dtype))
    losses = run(solver, oracle(function))
    assert solver.status in {Status.CONVERGED_GRADIENT, *STUCK}
    assert solver.best[0] == min(losses)
    assert solver.best[0] < minimum + 1.0  # in a kink's valley -g may lead nowhere
    assert solver.evaluations < (1000 if minimum else 10_000)  # a minimum of 0 has no end of digits


@pytest.mark.parametrize("offset", [1e4, -1e4, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_offset(make: Make, offset: float, dtype: torch.dtype) -> None:
    """Near the minimum the loss is a constant; the slopes still lead to it."""
    solver = make(START.to(dtype))
    run(solver, oracle(lambda x: rosenbrock(x) + offset))
    assert solver.status in {Status.CONVERGED_GRADIENT, *STUCK}
    rounding = torch.finfo(dtype).eps * abs(offset)
    assert solver.best[0] - offset <= 30.0 * rounding + 1e-7
    assert rosenbrock(solver.best[1].double()) < 30.0 * rounding + 1e-7
    assert solver.evaluations < 1000


@pytest.mark.parametrize("scale", [1e-10, 1e-30, 1e10, 1e30])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scaled_objective(make: Make, scale: float, dtype: torch.dtype) -> None:
    solver = make(START.to(dtype))
    run(solver, oracle(lambda x: scale * rosenbrock(x)))
    assert solver.status in {Status.CONVERGED_GRADIENT, *STUCK}
    assert solver.best[0] < 1e-6 * scale
    assert (solver.best[1] - 1.0).abs().max() < 1e-2


@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_evaluations_are_capped(make: Make, most: int) -> None:
    solver = make(START, max_evaluations=most)
    losses = run(solver, oracle(rosenbrock))
    assert (solver.status, solver.evaluations, len(losses)) == (Status.EVALUATIONS, most, most)
    assert solver.best[0] == min(losses)


def test_iterations_are_capped(make: Make) -> None:
    solver = make(START, max_iterations=3)
    run(solver, oracle(rosenbrock))
    assert (solver.status, solver.iterations) == (Status.ITERATIONS, 3)


def test_objective_tolerance(make: Make) -> None:
    solver = make(START, objective_tolerance=1e-2)
    run(solver, oracle(lambda x: rosenbrock(x) + 1.0))
    assert solver.status is Status.CONVERGED_OBJECTIVE


def test_wrong_gradient_is_found_out(make: Make) -> None:
    solver = make(START)
    run(solver, lambda x: (rosenbrock(x).item(), -oracle(rosenbrock)(x)[1]))
    assert solver.status is Status.LINE_SEARCH_FAILED
    assert torch.equal(solver.best[1], START)


def test_low_precision_reaches_its_limit(make: Make) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        solver = make(torch.tensor([3.0, -2.0, 1.0], dtype=dtype))
        run(solver, oracle(lambda x: (x - 0.3).square().sum() + x.prod().square()))
        assert solver.status in {Status.CONVERGED_GRADIENT, *STUCK}
        assert solver.best[0] < 0.5


def test_defaults_are_options_that_can_be_frozen() -> None:
    assert hash(LBFGSOptions()) == hash(LBFGSOptions(memory=10))
    assert LBFGS(START).ask().tolist() == START.tolist()
