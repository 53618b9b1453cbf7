"""Epochs of mini-batches: what the pairs relate, and where they lead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from psopt.optim.drivers import full_overlap_epoch, minimize, multi_batch_epoch
from psopt.optim.lbfgs import LBFGS, LBFGSOptions
from psopt.optim.solver import Status
from tests.optim.functions import oracle, rosenbrock
from tests.optim.solvers import SOLVERS, Make

ROWS, SIZE = 600, 12
SOURCE = torch.Generator().manual_seed(5)
INPUTS = torch.randn(ROWS, SIZE, generator=SOURCE, dtype=torch.float64)
LABELS = (
    INPUTS @ torch.ones(SIZE, dtype=torch.float64) + torch.randn(ROWS, generator=SOURCE) > 0
).double()
Rows = list[int]


@pytest.fixture(params=SOLVERS)
def make(request: pytest.FixtureRequest) -> Make:
    return SOLVERS[request.param]


def logistic(point: Tensor, rows: Rows) -> tuple[float, Tensor]:
    inputs, labels = INPUTS[rows], LABELS[rows]
    return oracle(
        lambda w: (
            torch.nn.functional.binary_cross_entropy_with_logits(inputs @ w, labels)
            + 0.005 * w.square().sum()
        )
    )(point)


def quadratic(point: Tensor, rows: Rows) -> tuple[float, Tensor]:
    """Mean over the rows of c_r |w - r|^2 / 2, each row with its own c: a pair shows its rows."""
    terms = [((1.0 + row) * (point - row), point - row) for row in rows]
    loss = sum(0.5 * float(gradient @ away) for gradient, away in terms) / len(rows)
    gradient = sum(gradient for gradient, _ in terms) / len(rows)
    assert isinstance(gradient, Tensor)
    return loss, gradient


def shuffled(epoch: int) -> Rows:
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(epoch))
    return [int(row) for row in order]


def parts(epoch: int, rest: int, overlap: int) -> tuple[list[Rows], list[Rows]]:
    rows, rests, overlaps = shuffled(epoch), [], []
    overlaps.append([rows.pop() for _ in range(overlap)])
    while len(rows) >= rest + overlap:
        rests.append([rows.pop() for _ in range(rest)])
        overlaps.append([rows.pop() for _ in range(overlap)])
    return rests, overlaps


def least() -> float:
    solver = LBFGS(torch.zeros(SIZE, dtype=torch.float64), LBFGSOptions(gradient_tolerance=1e-9))
    return minimize(solver, lambda point: logistic(point, list(range(ROWS))))[0]


def excess(point: Tensor) -> float:
    return logistic(point, list(range(ROWS)))[0] - least()


def test_minimize_returns_the_best(make: Make) -> None:
    solver = make(torch.tensor([-1.2, 1.0], dtype=torch.float64))
    loss, point = minimize(solver, oracle(rosenbrock))
    assert solver.status is Status.CONVERGED_GRADIENT
    assert loss == rosenbrock(point).item() < 1e-6


@pytest.mark.parametrize("steps", [1, 3])
def test_full_overlap_converges_to_the_noise(make: Make, steps: int) -> None:
    solver = make(torch.zeros(SIZE, dtype=torch.float64))
    for epoch in range(6):
        rows = shuffled(epoch)
        batches = [rows[first : first + 150] for first in range(0, ROWS, 150)]
        losses = full_overlap_epoch(solver, logistic, batches, steps)
        assert len(losses) == 4
    assert excess(solver.point) < 0.05
    assert solver.iterations <= 24 * steps


def test_multi_batch_converges_to_the_noise(make: Make) -> None:
    solver = make(torch.zeros(SIZE, dtype=torch.float64))
    for epoch in range(6):
        losses = multi_batch_epoch(solver, logistic, *parts(epoch, 100, 60))
    assert len(losses) == 3
    assert excess(solver.point) < 0.1


def curvatures(solver: LBFGS) -> list[float]:
    """y / s of each pair of the quadratic, oldest first."""
    memory: dict[str, Any] = solver.state()["memory"]
    ratios = [y / s for s, y in zip(memory["s"], memory["y"], strict=True)]
    assert all(torch.allclose(ratio, ratio[0]) for ratio in ratios)
    return [float(ratio[0]) for ratio in ratios]


def test_full_overlap_pairs_are_of_one_batch_each() -> None:
    solver = LBFGS(torch.full((3,), 0.5, dtype=torch.float64))
    full_overlap_epoch(solver, quadratic, [[1], [5, 7], [20], [3]])
    assert curvatures(solver) == pytest.approx([2.0, 7.0, 21.0, 4.0])


def test_multi_batch_pairs_are_of_the_overlaps() -> None:
    solver = LBFGS(torch.full((3,), 0.5, dtype=torch.float64))
    start = solver.point.clone()
    rests, overlaps = [[0, 1], [4], [9]], [[2], [5, 7], [20], [3]]
    losses = multi_batch_epoch(solver, quadratic, rests, overlaps)
    assert losses[0] == pytest.approx(quadratic(start, [2, 0, 1, 5, 7])[0])
    assert curvatures(solver) == pytest.approx([7.0, 21.0, 4.0])


def test_multi_batch_costs_one_batch_a_step_when_full_steps_are_taken() -> None:
    def counted(point: Tensor, rows: Rows) -> tuple[float, Tensor]:
        nonlocal rows_seen
        rows_seen += len(rows)
        return logistic(point, rows)

    rows_seen = 0
    solver = LBFGS(torch.zeros(SIZE, dtype=torch.float64))
    for epoch in range(4):
        multi_batch_epoch(solver, counted, *parts(epoch, 100, 60))
    # 12 steps; a batch has 220 rows, of which 60 come evaluated from the step before.
    assert rows_seen <= 12 * 220 + 4 * 60 + 12 * 60


def test_bad_batch_is_passed_over(make: Make) -> None:
    def sometimes(point: Tensor, rows: Rows) -> tuple[float, Tensor]:
        loss, gradient = logistic(point, rows)
        return (float("nan"), gradient * float("nan")) if 0 in rows else (loss, gradient)

    solver = make(torch.zeros(SIZE, dtype=torch.float64))
    for epoch in range(4):
        rows = shuffled(epoch)
        full_overlap_epoch(
            solver, sometimes, [rows[first : first + 150] for first in range(0, ROWS, 150)]
        )
        multi_batch_epoch(solver, sometimes, *parts(epoch, 100, 60))
    assert bool(torch.isfinite(solver.point).all())
    assert excess(solver.point) < 0.1


def test_caps_hold_over_batches(make: Make) -> None:
    solver = make(torch.zeros(SIZE, dtype=torch.float64), max_evaluations=7)
    for epoch in range(3):
        full_overlap_epoch(solver, logistic, [shuffled(epoch)[:100], shuffled(epoch)[100:]])
        multi_batch_epoch(solver, logistic, *parts(epoch, 100, 60))
    assert (solver.status, solver.evaluations) == (Status.EVALUATIONS, 7)


def test_overlaps_must_enclose_the_batches(make: Make) -> None:
    with pytest.raises(ValueError, match="2 batches need 3 overlaps"):
        multi_batch_epoch(make(torch.zeros(SIZE)), logistic, [[0], [1]], [[2], [3]])
