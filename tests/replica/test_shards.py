"""Gradients and probes on shards, against closed forms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from psopt.data.shards import Cut, Shard
from psopt.replica.batch_tasks import LocalMethod, LocalSolve, Probe, ShardGradient
from psopt.replica.memory import Memory
from psopt.replica.tasks import Alone, Evaluate
from tests.replica.convex import SHARD, network, problem
from tests.replica.support import Setup, bits

KINDS = ["linear", "logistic"]
METHODS = [
    LocalMethod("lbfgs", 0.1, 5),
    LocalMethod("cg", 0.1, 6),
    LocalMethod("svrg", 0.0, 4, 0.01),
    LocalMethod("sgd", 0.0, 2, 0.01),
]


@pytest.mark.parametrize("weight", [1.0, 0.25])
@pytest.mark.parametrize("batch", [1000, 7])  # at once; in batches of 7, the last one smaller
@pytest.mark.parametrize(
    ("kind", "cut"), [("linear", "iid"), ("logistic", "iid"), ("logistic", "by_label")]
)
def test_gradient_of_a_shard(kind: str, batch: int, weight: float, cut: Cut) -> None:
    given, shard = problem(kind, batch=batch), Shard(2, 3, cut, 1)
    x, y = given.rows(shard)
    result = given.perform(ShardGradient(0, shard, weight))
    (sums,) = result.tallies
    assert (sums.count, sums.finite, result.version) == (34, True, 0)
    assert sums.loss / sums.count == pytest.approx(given.value(given.w, x, y), rel=1e-13)
    expected = weight * given.gradient(given.w, x, y)
    torch.testing.assert_close(result.vectors[0], expected, rtol=1e-12, atol=1e-14)
    if kind == "logistic":
        assert sums.correct == int(((x @ given.w > 0) == (y > 0)).sum())
    else:
        assert sums.correct is None


@pytest.mark.parametrize("kind", KINDS)
def test_weighted_shards_add_up_to_the_whole(kind: str) -> None:
    given = problem(kind, batch=9)
    shards = [Shard(k, 3, "iid", 1) for k in range(3)]
    tasks = [ShardGradient(0, shard, shard.count(100) / 100) for shard in shards]
    total = sum(given.perform(task).vectors[0] for task in tasks)
    x, y = given.rows(Shard(0, 1, "iid", 1))
    torch.testing.assert_close(total, given.gradient(given.w, x, y), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("batch", [1000, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_probe(kind: str, batch: int) -> None:
    """Losses along the direction, without the penalty; without steps at the parameters."""
    given = problem(kind, batch=batch)
    x, y = given.rows()
    direction = torch.linspace(-1, 1, len(given.w), dtype=torch.float64)
    given.lend(5, direction)
    steps = (1.0, 0.25, -2.0)
    result = given.perform(Probe(5, SHARD, steps))
    for step, sums in zip(steps, result.tallies, strict=True):
        expected = given.value(given.w + step * direction, x, y)
        assert sums.count == len(x)
        assert sums.loss / sums.count == pytest.approx(expected, rel=1e-13)
    (here,) = given.perform(Probe(5, SHARD)).tallies
    assert here.loss / here.count == pytest.approx(given.value(given.w, x, y), rel=1e-13)
    assert result.vectors == ()


@pytest.mark.parametrize("model", ["plain", "norm", "dropout", "replacing"])
def test_a_verb_leaves_the_parameters_as_loaded(model: str) -> None:
    """And gives the same bits again, whatever came between: masks and buffers are those of the version."""
    given = network(model)
    w = given.w.clone()
    given.lend(1, torch.full_like(w, 0.01))
    solves = [LocalSolve(1, SHARD, 0.3, method, mu=0.5, eta=1.0) for method in METHODS]
    tasks: list[Any] = [ShardGradient(1, SHARD, 1.0), Probe(1, SHARD, (0.5, 1.0)), *solves]
    first = []
    for task in tasks:
        given.memory = Memory()
        first.append(given.perform(task))
        assert torch.equal(given.w, w)
    for task, before in zip(reversed(tasks), reversed(first), strict=True):
        given.memory = Memory()
        given.perform(Evaluate(1, 0, 1))
        again = given.perform(task)
        assert again.tallies == before.tallies
        assert bits(again.vectors) == bits(before.vectors)
        assert all(bool(vector.isfinite().all()) for vector in again.vectors)


def test_batch_normalisation_is_that_of_each_batch() -> None:
    given = network("norm", batch=8)
    x, y = given.replica.data.train.batch(SHARD.rows(given.replica.data.train))
    result = given.perform(ShardGradient(0, SHARD, 1.0))
    module = Setup("norm").flat().module.train()
    total: Any = sum(
        functional.cross_entropy(module(x[k : k + 8]), y[k : k + 8]) * len(y[k : k + 8])
        for k in range(0, len(x), 8)
    )
    (total / len(x)).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])
    torch.testing.assert_close(result.vectors[0], expected, rtol=1e-4, atol=1e-6)
    assert result.tallies[0].loss == pytest.approx(float(total.detach()), rel=1e-5)


def test_what_is_not_finite_is_said() -> None:
    replica = Setup("plain", poisoned=0).replica()
    replica.load(0, replica.model.vectors)
    for index in range(3):
        shard = Shard(index, 3, "iid", 1)
        (sums,) = replica.perform(ShardGradient(0, shard, 1.0), Alone(), Memory()).tallies
        holds = 0 in shard.rows(replica.data.train)
        assert sums.finite is not holds
        assert math.isfinite(sums.loss) is not holds


def test_one_sample_a_shard() -> None:
    given, shard = problem("linear", samples=5), Shard(4, 5, "iid", 1)
    x, y = given.rows(shard)
    result = given.perform(ShardGradient(0, shard, 1.0))
    assert result.tallies[0].count == len(x) == 1
    torch.testing.assert_close(result.vectors[0], given.gradient(given.w, x, y), rtol=1e-12, atol=0)
