"""The contract of ``psopt.optim.solver``, over all solvers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from psopt.optim.descent import Descent
from psopt.optim.solver import Status
from tests.optim.functions import Function, oracle, powell_singular, rosenbrock
from tests.optim.solvers import SOLVERS, Make, bits, run, same, saved

START = torch.tensor([-1.2, 1.0, -0.7, 1.4], dtype=torch.float64)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(params=SOLVERS)
def make(request: pytest.FixtureRequest) -> Make:
    return SOLVERS[request.param]


def kink(x: Tensor) -> Tensor:
    return (x.abs() * torch.arange(1, x.numel() + 1)).sum() + 0.5 * (x[0] - x[1]) ** 2


def walled(x: Tensor) -> Tensor:
    """NaN outside a half space that the searches run into."""
    return rosenbrock(x) - 0.1 * (1.0 - x.sum() / 4).log()


FUNCTIONS = {"smooth": rosenbrock, "kink": kink, "wall": walled, "singular": powell_singular}


def test_asking_twice_gives_the_same_point(make: Make) -> None:
    solver, evaluate = make(START), oracle(rosenbrock)
    while not solver.done:
        first = solver.ask()
        before = first.clone()
        again = solver.ask()
        assert again is first
        assert torch.equal(again, before)
        solver.tell(*evaluate(again))
    with pytest.raises(RuntimeError, match=r"converged \(gradient\)"):
        solver.ask()
    with pytest.raises(RuntimeError, match="tell follows ask"):
        solver.tell(0.0, START)


def test_tell_follows_ask(make: Make) -> None:
    solver = make(START)
    solver.tell(*oracle(rosenbrock)(solver.ask()))
    with pytest.raises(RuntimeError, match="tell follows ask"):
        solver.tell(0.0, START)


def test_keeps_neither_start_nor_gradient(make: Make) -> None:
    def spoilt(point: Tensor) -> tuple[float, Tensor]:
        gradient.copy_(oracle(rosenbrock)(point)[1])
        return oracle(rosenbrock)(point)[0], gradient

    gradient, start = torch.empty_like(START), START.clone()
    plain, other = make(START), make(start)
    start.fill_(math.nan)
    expected = run(plain, oracle(rosenbrock))
    losses = []
    while not other.done:
        loss, told = spoilt(other.ask())
        other.tell(loss, told)
        told.fill_(math.nan)
        losses.append(loss)
    assert losses == expected


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_stopped_anywhere_it_goes_on_bitwise(
    make: Make, function: Function, dtype: torch.dtype
) -> None:
    """From every state one ask or tell leads to the next one: by induction, to the same end."""
    evaluate, start = oracle(function), START.to(dtype)
    whole = make(start, max_evaluations=60)
    state = saved(whole)
    while not whole.done:
        for act in (Descent.ask, lambda solver: solver.tell(*evaluate(solver.ask()))):
            act(whole)
            part = make(torch.zeros_like(start), max_evaluations=60)
            part.load(state)
            act(part)
            state = saved(whole)
            assert same(saved(part), state)
            if not whole.done:
                assert bits(part.ask()) == bits(whole.ask())


def test_state_of_other_vectors_is_refused(make: Make) -> None:
    state = make(START).state()
    with pytest.raises(ValueError, match=r"4 elements of torch\.float64"):
        make(START[:2]).load(state)
    with pytest.raises(ValueError, match=r"the solver of 4 of torch\.float32"):
        make(START.float()).load(state)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_best_is_the_lowest_told(make: Make, function: Function, dtype: torch.dtype) -> None:
    solver, evaluate = make(START.to(dtype), max_evaluations=100), oracle(function)
    lowest = min(loss for loss in run(solver, evaluate) if math.isfinite(loss))
    loss, point = solver.best
    assert loss == pytest.approx(lowest, rel=1e-2 if dtype.itemsize == 2 else 1e-5)
    assert evaluate(point)[0] == loss
    assert solver.evaluations <= 100


def test_wrong_shapes_are_refused(make: Make) -> None:
    for start in (torch.zeros(2, 2), torch.tensor(1.0), torch.arange(3)):
        with pytest.raises(ValueError, match="flat vector"):
            make(start)
    solver = make(START)
    with pytest.raises(ValueError, match=r"shape \(2,\), the point \(4,\)"):
        solver.tell(0.0, solver.ask()[:2])


def test_nothing_to_optimise(make: Make) -> None:
    solver = make(torch.empty(0))
    assert run(solver, lambda point: (3.0, torch.empty(0))) == [3.0]
    assert solver.status is Status.CONVERGED_GRADIENT


@pytest.mark.parametrize("dtype", DTYPES)
def test_rebase_goes_on_from_the_current_point(make: Make, dtype: torch.dtype) -> None:
    """In the middle of a search, and after the end, with a point that stays where it was."""
    solver, evaluate = make(START.to(dtype)), oracle(rosenbrock)
    for _ in range(15):
        solver.tell(*evaluate(solver.ask()))
    solver.ask()
    point = solver.point.clone()
    iterations = solver.iterations
    solver.rebase(*oracle(powell_singular)(point))
    assert torch.equal(solver.point, point)
    assert solver.best[0] == solver.loss == oracle(powell_singular)(point)[0]
    assert (solver.iterations, solver.evaluations) == (iterations, 16)
    run(solver, oracle(powell_singular), 300)
    assert solver.best[0] < 1e-2 * powell_singular(point).item()


def test_rebase_clears_what_the_old_objective_said(make: Make) -> None:
    solver = make(START, max_iterations=50)
    solver.rebase(math.nan, START)
    assert solver.status is Status.NON_FINITE
    solver.rebase(0.0, torch.zeros_like(START))
    assert solver.status is Status.CONVERGED_GRADIENT
    solver.rebase(*oracle(rosenbrock)(solver.point))
    run(solver, oracle(rosenbrock))
    if solver.status is Status.ITERATIONS:
        solver.rebase(*oracle(rosenbrock)(solver.point))
        assert solver.status is Status.ITERATIONS


def test_every_status_has_advice() -> None:
    assert all(status.advice for status in Status)
