"""Local problems: their minimum in closed form, what the solvers promise, and what they cost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from psopt.data.shards import Shard
from psopt.replica.batch_tasks import LocalMethod, LocalSolve, ShardGradient
from psopt.replica.memory import Memory
from psopt.replica.tasks import Result
from tests.replica.convex import L2, SHARD, Problem, problem
from tests.replica.support import bits

MU = 0.3
CG = LocalMethod("cg", 1e-12, 100)
LBFGS = LocalMethod("lbfgs", 1e-10, 200)
SVRG = LocalMethod("svrg", 0.0, 20, 0.05)
SGD = LocalMethod("sgd", 0.0, 10, 0.01)
ALL = [CG, LBFGS, SVRG, SGD]
COUNT = 33  # samples of the shard


def names(method: LocalMethod) -> str:
    return method.name


def direction(w: Tensor) -> Tensor:
    return torch.linspace(-1.0, 2.0, len(w), dtype=w.dtype)


def solved(given: Problem, method: LocalMethod, **options: Any) -> Result:
    """A solve at version 1, with a direction."""
    given.lend(1, direction(given.w))
    options = {"mu": MU, "eta": 1.0, **options}
    return given.perform(LocalSolve(1, SHARD, options.pop("weight", 1.0), method, **options))


def way_of(given: Problem, method: LocalMethod, **options: Any) -> Tensor:
    return solved(given, method, **options).vectors[0]


def gradient_of_h(given: Problem, way: Tensor, eta: float = 1.0, mu: float = MU) -> Tensor:
    """At a + way, in closed form."""
    x, y = given.rows()
    a = given.w
    change = given.gradient(a + way, x, y) - given.gradient(a, x, y)
    result: Tensor = change + eta * direction(a) + (L2 + mu) * way
    return result


def newton(given: Problem, eta: float = 1.0, curb: float = L2 + MU, part: float = 1.0) -> Tensor:
    """-eta (H + curb I)^-1 g."""
    hessian = given.hessian(given.w, *given.rows(part=part))
    eye = torch.eye(len(given.w), dtype=torch.float64)
    way: Tensor = -eta * torch.linalg.solve(hessian + curb * eye, direction(given.w))
    return way


@pytest.mark.parametrize("batch", [1000, 7])
@pytest.mark.parametrize("eta", [1.0, 0.4])
@pytest.mark.parametrize(("method", "tolerance"), [(CG, 1e-11), (LBFGS, 1e-9)])
def test_quadratic(method: LocalMethod, tolerance: float, eta: float, batch: int) -> None:
    given = problem("linear", batch=batch)
    way = way_of(given, method, eta=eta, weight=0.5)
    torch.testing.assert_close(way, 0.5 * newton(given, eta), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("method", [CG, LBFGS], ids=names)
def test_without_the_penalty_and_with_a_part(method: LocalMethod) -> None:
    given = problem("linear", batch=10)
    way = way_of(given, method, penalty=False)
    torch.testing.assert_close(way, newton(given, curb=MU), rtol=1e-8, atol=1e-9)
    result = solved(given, method, part=0.6)
    expected = newton(given, part=0.6)
    torch.testing.assert_close(result.vectors[0], expected, rtol=1e-8, atol=1e-9)
    assert result.tallies[0].count % 20 == 0  # round(0.6 * 33) samples, whole passes


@pytest.mark.parametrize("penalty", [True, False])
@pytest.mark.parametrize("part", [1.0, 0.5])
@pytest.mark.parametrize("method", [CG, LBFGS], ids=names)
def test_plain_minimum(method: LocalMethod, part: float, penalty: bool) -> None:
    """Without eta h is the shard's own objective and the proximal term."""
    given = problem("linear", batch=10)
    a, (x, y) = given.w.clone(), given.rows(part=part)
    way = way_of(given, method, eta=None, part=part, penalty=penalty)
    l2, eye = L2 if penalty else 0.0, torch.eye(len(a), dtype=torch.float64)
    gradient = given.gradient(a, x, y) + l2 * a
    expected = -torch.linalg.solve(given.hessian(a, x, y) + (l2 + MU) * eye, gradient)
    torch.testing.assert_close(way, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("batch", [1000, 7])
def test_logistic_minimum(batch: int) -> None:
    """Beyond the quadratic model: L-BFGS finds the minimum, one CG solve the Newton step."""
    given = problem("logistic", batch=batch)
    way = way_of(given, LBFGS)
    assert float(gradient_of_h(given, way).norm()) <= 1e-9
    torch.testing.assert_close(way_of(given, CG), newton(given), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 0.1, 1e-3, 1e-8])
@pytest.mark.parametrize("name", ["lbfgs", "cg"])
@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_gamma(kind: str, name: Any, gamma: float) -> None:
    """|grad h(w)| <= gamma eta |g|, with no more work for a wider gamma."""
    given, eta = problem(kind, batch=10), 0.7
    result = solved(given, LocalMethod(name, gamma, 200), eta=eta)
    way = result.vectors[0]
    limit = gamma * eta * float(direction(given.w).norm())
    if name == "cg":  # of the quadratic model
        hessian = given.hessian(given.w, *given.rows())
        rest = hessian @ way + (L2 + MU) * way + eta * direction(given.w)
    else:
        rest = gradient_of_h(given, way, eta)
    assert float(rest.norm()) <= limit * (1 + 1e-9)
    assert result.tallies[0].count <= 201 * COUNT
    less = solved(given, LocalMethod(name, min(0.9, 2 * gamma), 200), eta=eta)
    assert less.tallies[0].count <= result.tallies[0].count


class Counting:
    """Counts the gradients over batches that a replica computes."""

    def __init__(self, given: Problem) -> None:
        self.samples, self._right = 0, given.replica.batch_gradient
        given.replica.batch_gradient = self._count  # type: ignore[method-assign]

    def _count(self, x: Tensor, y: Tensor, views: Any) -> tuple[Tensor, Tensor]:
        self.samples += len(x)
        return self._right(x, y, views)


@pytest.mark.parametrize("passes", [1, 2, 3, 7])
@pytest.mark.parametrize("method", ALL, ids=names)
def test_budget(method: LocalMethod, passes: int) -> None:
    """As many passes as are allowed, and none at a but one where its gradient is not known."""
    given = problem("logistic", batch=10)
    counting = Counting(given)
    tight = LocalMethod(method.name, 0.0, passes, 0.05)
    (sums,) = solved(given, tight).tallies
    in_twos = method.name in ("cg", "svrg")
    expected = passes // 2 * 2 if in_twos else passes
    assert sums.count == (1 + expected) * COUNT
    if method.name != "cg":
        assert counting.samples == sums.count
    given.perform(ShardGradient(1, SHARD, 1.0))
    counting.samples = 0
    (sums,) = solved(given, tight, base=1).tallies
    assert sums.count == expected * COUNT
    assert counting.samples == (0 if method.name == "cg" else sums.count)


def test_a_product_counts_twice() -> None:
    """CG on seven unknowns is through after seven products."""
    given = problem("linear", batch=10)
    products = 0
    right = given.replica.model.product

    def product(graph: Tensor, vector: Tensor) -> Tensor:
        nonlocal products
        products += 1
        return right(graph, vector)

    given.replica.model.product = product  # type: ignore[method-assign]
    (sums,) = solved(given, CG).tallies
    assert products == 4 * 7  # batches of 10, 10, 10, 3
    assert sums.count == (1 + 2 * 7) * COUNT


def test_passes_buy_progress() -> None:
    """L-BFGS on a budget gives the lowest point that it has seen."""
    given = problem("logistic", batch=10)
    x, y = given.rows()
    a, l2 = given.w.clone(), L2

    def h(way: Tensor) -> float:
        c = given.gradient(a, x, y) + l2 * a - direction(a)
        w = a + way
        plain = given.value(w, x, y) + l2 / 2 * float(w @ w)
        return plain - float(c @ way) + MU / 2 * float(way @ way)

    values = [h(way_of(given, LocalMethod("lbfgs", 0.0, passes))) for passes in range(1, 12)]
    assert all(later <= value + 1e-12 for value, later in pairwise(values))
    assert values[0] < h(torch.zeros_like(a))
    assert values[-1] - h(way_of(given, LBFGS)) < 1e-6


@pytest.mark.parametrize(
    ("kind", "batch", "lr", "near"),
    [
        ("linear", 1000, 0.3, 1e-9),  # one batch: gradient descent
        ("logistic", 1000, 0.3, 1e-5),
        ("linear", 9, 0.01, 0.03),  # 9, 9, 9, 6
        ("logistic", 9, 0.1, 2e-3),
        ("linear", 32, 0.01, 0.04),  # 32 and 1, which must not count for a half
        ("logistic", 32, 0.3, 1e-2),
    ],
)
@pytest.mark.parametrize("name", ["svrg", "sgd"])
def test_stochastic_solvers_approach_the_minimum(
    name: Any, kind: str, batch: int, lr: float, near: float
) -> None:
    given = problem(kind, batch=batch)
    best = way_of(given, LBFGS)
    way = way_of(given, LocalMethod(name, 0.0, 200 if name == "svrg" else 100, lr))
    assert float((way - best).norm() / best.norm()) < near


@pytest.mark.parametrize("method", ALL, ids=names)
def test_deterministic_in_turn(method: LocalMethod) -> None:
    given = problem("logistic", batch=10)
    ways = [way_of(given, method, turn=turn) for turn in (0, 1, 0)]
    assert torch.equal(ways[0], ways[2])
    assert torch.equal(ways[0], ways[1]) is (method.name in ("cg", "lbfgs"))


@pytest.mark.parametrize("method", ALL, ids=names)
def test_a_known_gradient_gives_the_same_bits(method: LocalMethod) -> None:
    given = problem("logistic", batch=10)
    fresh = solved(given, method)
    given.memory = Memory()
    given.perform(ShardGradient(1, SHARD, 0.25))  # as it was before its weight
    known = solved(given, method, base=1)
    assert bits(known.vectors) == bits(fresh.vectors)
    assert fresh.tallies[0].count - known.tallies[0].count == COUNT


@pytest.mark.parametrize("method", ALL, ids=names)
def test_a_known_gradient_is_of_its_version_shard_and_part(method: LocalMethod) -> None:
    given = problem("logistic", batch=10)
    fresh, part = solved(given, method), solved(given, method, part=0.5)
    elsewhere = given.w + 1.0
    at = given.w.clone()
    for shard, version in ((SHARD, 7), (Shard(0, 3, "iid", 1), 1), (Shard(1, 3, "iid", 2), 1)):
        given.memory = Memory()
        given.move(version, elsewhere)
        given.perform(ShardGradient(version, shard, 1.0))
        given.move(version, at)
        again = solved(given, method, base=1)
        assert bits(again.vectors) == bits(fresh.vectors)
        assert again.tallies[0].count == fresh.tallies[0].count - COUNT  # it was asked for before
    given.memory = Memory()
    given.perform(ShardGradient(1, SHARD, 1.0))
    again = solved(given, method, base=1, part=0.5)
    assert bits(again.vectors) == bits(part.vectors)


def test_a_solve_may_begin_again_where_it_did() -> None:
    """After gradients elsewhere, as where a round is rejected: nothing is computed twice."""
    given = problem("logistic", batch=10)
    counting = Counting(given)
    at = given.w.clone()
    given.perform(ShardGradient(0, SHARD, 1.0))
    first = solved(given, LBFGS, base=0)
    for version in (2, 3):
        given.move(version, at + version)
        given.perform(ShardGradient(version, SHARD, 1.0))
    given.move(4, at)
    counting.samples = 0
    again = solved(given, LBFGS, base=0)
    assert bits(again.vectors) == bits(first.vectors)
    assert again.tallies == first.tallies
    assert counting.samples == again.tallies[0].count
