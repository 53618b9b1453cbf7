"""Local problems that are degenerate, without a minimum, or of networks: no NaN, and an end within the budget."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from psopt.data.shards import Shard
from psopt.replica.batch_tasks import LocalMethod, LocalSolve, ShardGradient
from tests.replica.convex import SHARD, network, problem
from tests.replica.test_local import ALL, CG, COUNT, MU, direction, names, solved, way_of


@pytest.mark.parametrize("method", ALL, ids=names)
@pytest.mark.parametrize("model", ["plain", "norm"])
def test_nothing_to_do_at_a_minimum(model: str, method: LocalMethod) -> None:
    """A gradient of zero: the way is zero, and costs nothing."""
    given = network(model)
    given.lend(1, torch.zeros_like(given.w))
    result = given.perform(LocalSolve(1, SHARD, 1.0, method, eta=1.0))
    assert torch.equal(result.vectors[0], torch.zeros_like(given.w))
    assert result.tallies[0].finite
    assert result.tallies[0].count == 20  # for the gradient of the shard


@pytest.mark.parametrize("method", ALL, ids=names)
def test_one_sample(method: LocalMethod) -> None:
    given, shard = problem("logistic", samples=3, batch=10), Shard(1, 3, "iid", 1)
    given.lend(1, direction(given.w))
    result = given.perform(LocalSolve(1, shard, 1.0, method, mu=MU, eta=1.0))
    way = result.vectors[0]
    assert bool(way.isfinite().all())
    assert float(way @ direction(given.w)) < 0.0
    assert result.tallies[0].count >= 2


@pytest.mark.parametrize("penalty", [True, False])
@pytest.mark.parametrize("kind", ["plain", "norm", "dropout"])
@pytest.mark.parametrize("method", ALL, ids=names)
def test_networks_in_float32(method: LocalMethod, kind: str, penalty: bool) -> None:
    """Never NaN, whether h has a minimum (mu) or none; and lower along the gradient's direction."""
    given = network(kind, l2=0.01)
    gradient = given.perform(ShardGradient(0, SHARD, 1.0)).vectors[0].clone()
    short = replace(method, gamma=1e-3, passes=min(method.passes, 40))
    for mu in (0.0, 1.0):
        given.lend(1, gradient)
        task = LocalSolve(1, SHARD, 1.0, short, mu=mu, eta=1.0, penalty=penalty)
        way = given.perform(task).vectors[0]
        assert bool(way.isfinite().all())
        assert float(way @ gradient) < 0.0
    ahead = given.w + way
    before = given.perform(ShardGradient(1, SHARD, 1.0)).tallies[0].loss
    given.move(2, ahead)
    after = given.perform(ShardGradient(2, SHARD, 1.0)).tallies[0].loss
    assert after < before or method.name == "cg"  # its model is good near a only


def test_negative_curvature() -> None:
    """CG steps along -grad h(a) where it sees no positive curvature at once, and stays where it is later."""
    given = problem("linear")
    right = given.replica.loss
    given.replica.loss = lambda output, y: -right(output, y)
    way = way_of(given, CG, mu=0.0, penalty=False)
    assert torch.equal(way, -direction(given.w))
    given.replica.loss = right
    least = float(torch.linalg.eigvalsh(given.hessian(given.w, *given.rows()))[0])
    given.replica.l2 = -least - 1e-3  # one direction of seven curves downwards
    way = way_of(given, CG, mu=0.0)
    assert bool(way.isfinite().all())
    assert float(way @ direction(given.w)) < 0.0
    assert not torch.equal(way, -direction(given.w))


@pytest.mark.parametrize("method", ALL, ids=names)
def test_what_is_not_finite_ends(method: LocalMethod) -> None:
    """A start at which nothing is finite: an end within the budget, and no error."""
    given = problem("linear", batch=10)
    given.move(0, torch.full_like(given.w, 1e200))
    result = solved(given, method)
    finite = bool(result.vectors[0].isfinite().all())
    assert result.tallies[0].finite is finite
    assert result.tallies[0].count <= 201 * COUNT


def test_steps_that_are_too_long_are_said_to_be_not_finite() -> None:
    given = problem("linear", batch=10)
    (sums,) = solved(given, LocalMethod("sgd", 0.0, 20, 1e9)).tallies
    assert not sums.finite
    assert math.isfinite(sums.loss)
