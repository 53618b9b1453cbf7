"""Evaluations beside the scipy that is installed, in the same run, at the same tolerance."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from scipy import optimize

from psopt.optim.cg import CG, Beta, CGOptions
from psopt.optim.descent import Descent
from psopt.optim.drivers import minimize
from psopt.optim.lbfgs import LBFGS, LBFGSOptions
from psopt.optim.solver import Status
from tests.optim.functions import PROBLEMS, Problem, oracle

TOLERANCE = 1e-5  # max |g|, for both
LBFGS_OPTIONS = LBFGSOptions(gradient_tolerance=0.0, absolute_gradient=TOLERANCE)
CG_OPTIONS = CGOptions(gradient_tolerance=0.0, absolute_gradient=TOLERANCE)
HZ_OPTIONS = CGOptions(gradient_tolerance=0.0, absolute_gradient=TOLERANCE, beta=Beta.HAGER_ZHANG)
SCIPY: dict[str, dict[str, Any]] = {
    # ftol 0: at its default it stops Wood and Penalty I far from their minima
    "L-BFGS-B": {"maxcor": 10, "gtol": TOLERANCE, "ftol": 0.0, "maxiter": 10_000, "maxfun": 10_000},
    "CG": {"gtol": TOLERANCE, "maxiter": 10_000},
}


def theirs(problem: Problem, method: str) -> int | None:
    """Evaluations of scipy; None when it did not get there."""
    evaluate, count = oracle(problem.function), 0

    def function(x: Any) -> tuple[float, Any]:
        nonlocal count
        count += 1
        loss, gradient = evaluate(torch.from_numpy(x.copy()))
        return loss, gradient.numpy()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = optimize.minimize(
            function, problem.start, jac=True, method=method, options=SCIPY[method]
        )
    return count if result.success and reached(problem, result.fun) else None


def reached(problem: Problem, loss: float) -> bool:
    """Minima are listed to six digits; what |g| <= 1e-5 leaves on the flattest is below 2e-6."""
    return loss - problem.minimum <= 2e-6 + 2e-6 * abs(problem.minimum)


def compare(method: str, solvers: list[Descent]) -> list[tuple[str, int, int | None]]:
    """Ours and theirs on all problems; fails where ours does not reach the minimum."""
    rows = []
    for problem, solver in zip(PROBLEMS, solvers, strict=True):
        loss, _ = minimize(solver, oracle(problem.function))
        assert solver.status is Status.CONVERGED_GRADIENT, problem.name
        assert reached(problem, loss), f"{problem.name}: {loss}"
        rows.append((problem.name, solver.evaluations, theirs(problem, method)))
    for name, ours, other in rows:
        print(f"{name:24} {ours:5} {other if other is not None else 'fails':>5}")
    return rows


def worst_and_total(rows: list[tuple[str, int, int | None]]) -> tuple[float, float]:
    both = [(ours, other) for _, ours, other in rows if other is not None]
    assert len(both) >= len(PROBLEMS) - 2
    total = sum(ours for ours, _ in both) / sum(other for _, other in both)
    return max(ours / other for ours, other in both), total


def starts() -> list[torch.Tensor]:
    return [torch.tensor(problem.start, dtype=torch.float64) for problem in PROBLEMS]


def test_lbfgs_beside_lbfgsb() -> None:
    worst, total = worst_and_total(
        compare("L-BFGS-B", [LBFGS(start, LBFGS_OPTIONS) for start in starts()])
    )
    assert worst <= 1.5
    assert total <= 1.0


def test_cg_beside_cg() -> None:
    worst, total = worst_and_total(compare("CG", [CG(start, CG_OPTIONS) for start in starts()]))
    assert worst <= 1.5
    assert total <= 1.0


def test_hager_zhang_beside_cg() -> None:
    worst, total = worst_and_total(compare("CG", [CG(start, HZ_OPTIONS) for start in starts()]))
    assert worst <= 2.0
    assert total <= 1.0
