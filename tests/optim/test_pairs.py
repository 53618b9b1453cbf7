"""The memory of L-BFGS beside the dense formula, and beyond 2^31 elements."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from psopt.optim.inner import dot
from psopt.optim.lbfgs import LBFGS, LBFGSOptions
from psopt.optim.pairs import Pairs
from tests.optim.functions import oracle, rosenbrock
from tests.optim.solvers import bits, run, same, saved

SIZE = 7


def steps(count: int, dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, Tensor]]:
    """(s, y) of a positive definite quadratic."""
    source = torch.Generator().manual_seed(3)
    root = torch.randn(SIZE, SIZE, generator=source, dtype=torch.float64)
    hessian = root @ root.T + torch.eye(SIZE)
    s = [torch.randn(SIZE, generator=source, dtype=torch.float64) for _ in range(count)]
    return [(step.to(dtype), (hessian @ step).to(dtype)) for step in s]


def push(pairs: Pairs, s: Tensor, y: Tensor) -> bool:
    zero = torch.zeros_like(s)
    return pairs.add(s, zero, y, zero)


def dense(history: list[tuple[Tensor, Tensor]]) -> Tensor:
    """H_k by the update formula (Nocedal & Wright, eq. 7.16 and 7.20)."""
    s, y = history[-1]
    h = torch.eye(SIZE, dtype=torch.float64) * (s @ y / (y @ y))
    for s, y in history:
        rho = 1.0 / (s @ y)
        v = torch.eye(SIZE, dtype=torch.float64) - rho * torch.outer(y, s)
        h = v.T @ h @ v + rho * torch.outer(s, s)
    return h


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 9])
def test_two_loops_are_the_dense_formula(count: int) -> None:
    history = steps(count)
    pairs = Pairs(4, history[0][0], skip=1e-8, damp=False)
    assert all(push(pairs, s, y) for s, y in history)
    assert len(pairs) == min(count, 4)
    vector = torch.arange(SIZE, dtype=torch.float64)
    expected = dense(history[-4:]) @ vector
    pairs.apply(vector)
    assert torch.allclose(vector, expected, rtol=1e-9)


def test_without_pairs_nothing_changes() -> None:
    vector = torch.arange(3.0)
    Pairs(4, vector, skip=1e-8, damp=False).apply(vector)
    assert torch.equal(vector, torch.arange(3.0))


@pytest.mark.parametrize("turn", [-1.0, 0.0])
def test_pair_without_curvature_changes_nothing(turn: float) -> None:
    history = steps(5)
    pairs = Pairs(3, history[0][0], skip=1e-8, damp=False)
    for s, y in history:
        push(pairs, s, y)
    before = copy.deepcopy(pairs.state())
    assert not push(pairs, history[0][0], turn * history[0][1])
    assert same(pairs.state(), before)


def test_damped_pair_has_a_fifth_of_the_curvature() -> None:
    (s0, y0), (s, y) = steps(2)
    pairs = Pairs(3, s0, skip=1e-8, damp=True)
    push(pairs, s0, y0)
    gamma = pairs.state()["gamma"]
    assert push(pairs, s, -y)
    state = pairs.state()
    assert dot(state["s"][1], state["y"][1]) == pytest.approx(0.2 * dot(s, s) / gamma)


@pytest.mark.parametrize("damp", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("power", [-36, -44, -100, -140, -150, -155, -160, -163, -170, -300, -320])
def test_tiny_objectives_end_as_they_should(power: int, dtype: torch.dtype, damp: bool) -> None:
    """Rosenbrock so small that products of its gradients, or they themselves, underflow."""
    scale = 10.0**power
    start = torch.tensor([-1.2, 1.0], dtype=dtype)
    solver = LBFGS(start, LBFGSOptions(memory=3, damp=damp))
    run(solver, oracle(lambda x: scale * rosenbrock(x)), at_most=2000)
    assert solver.point.isfinite().all()
    state = solver.state()["memory"]
    assert all(0 < value < math.inf for value in (*state["rho"], state["gamma"]))


def test_damped_pair_without_curvature_is_left_out() -> None:
    """Powell's rule makes s'y 0.2 s'Bs, which may be too little to divide by."""
    (s0, y0), (s1, y1), (s2, y2) = steps(3)
    pairs = Pairs(2, s0, skip=1e-8, damp=True)
    for s, y in ((s0, y0), (s1, y1)):
        push(pairs, s, y)
    expected = copy.deepcopy(pairs.state())
    assert not push(pairs, 1e-161 * s2, -1e-161 * y2)
    state = pairs.state()
    assert state["slots"] == expected["slots"][1:]
    assert state["gamma"] == expected["gamma"]
    assert torch.equal(state["s"][0], expected["s"][1])
    assert push(pairs, s0, y0)
    assert len(pairs) == 2


@pytest.mark.parametrize("count", [2, 4, 5, 6])  # before and after the ring has come round
@pytest.mark.parametrize("memory", [1, 3, 4, 5, 7])
def test_a_memory_of_another_size_goes_on(count: int, memory: int) -> None:
    """From the newest pairs that there is room for, each of the following ones in a row of its own."""
    history = steps(count + 5)
    first = Pairs(4, history[0][0], skip=1e-8, damp=False)
    for s, y in history[:count]:
        push(first, s, y)
    second = Pairs(memory, history[0][0], skip=1e-8, damp=False)
    second.load(first.state())
    kept = history[max(0, count - min(4, memory)) : count]
    for s, y in history[count:]:
        push(second, s, y)
        kept = [*kept, (s, y)][-memory:]
        vector = torch.arange(SIZE, dtype=torch.float64)
        expected = dense(kept) @ vector
        second.apply(vector)
        assert torch.allclose(vector, expected, rtol=1e-9)


def test_rows_beyond_two_to_the_31_elements() -> None:
    """Rows that are never written cost no memory: a few at the end of 4 GiB are tens of MiB.

    The same run from the first rows and from the last ones, over the end of the ring.
    """
    size, memory = 1 << 22, 520
    assert size * memory > 1 << 31

    def oracle(point: Tensor) -> tuple[float, Tensor]:
        gradient = point * weights
        return 0.5 * dot(point, gradient), gradient

    def move(state: dict[str, Any]) -> dict[str, Any]:
        state["memory"]["slots"] = [slot + memory - 3 for slot in state["memory"]["slots"]]
        return state

    def advance(solver: LBFGS, iterations: int) -> None:
        while solver.iterations < iterations:
            solver.tell(*oracle(solver.ask()))

    weights = (torch.arange(size) % 7 + 1).to(torch.bfloat16)
    low = LBFGS(torch.ones(size, dtype=torch.bfloat16), LBFGSOptions(memory=memory))
    advance(low, 2)
    high = LBFGS(torch.zeros(size, dtype=torch.bfloat16), LBFGSOptions(memory=memory))
    high.load(move(saved(low)))
    for solver in (low, high):
        advance(solver, 5)
    assert low.state()["memory"]["slots"] == [0, 1, 2, 3, 4]
    assert high.state()["memory"]["slots"] == [517, 518, 519, 0, 1]
    assert bits(low.point) == bits(high.point)
    assert low.loss == high.loss < 0.1 * size


def test_vectors_that_a_solver_holds() -> None:
    """2m + 5, and the gradient that is told: what fits where (2m + 8) n elements do."""
    solver = LBFGS(torch.zeros(1000), LBFGSOptions(memory=10))
    held = [*vars(solver).values(), *vars(solver._pairs).values()]
    assert sum(each.numel() for each in held if isinstance(each, Tensor)) == 25 * 1000
