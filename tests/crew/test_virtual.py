"""The virtual cluster's clockwork, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from psopt.config.cluster import ComputeConfig
from psopt.crew.virtual import ComputeTimes, Network, distribution


@pytest.mark.parametrize(
    ("name", "sigma", "deviation"),
    [
        ("constant", 0.5, 0.0),
        ("lognormal", 0.5, np.sqrt(np.expm1(0.25))),
        ("lognormal", 0.0, 0.0),
        ("exponential", 0.5, 1.0),
        ("uniform", 0.5, 0.5 / np.sqrt(3)),
        ("uniform", 1.0, 1 / np.sqrt(3)),
    ],
)
def test_mean_and_spread(name: str, sigma: float, deviation: float) -> None:
    draw, generator = distribution(name, 0.04, sigma), np.random.default_rng(3)
    seconds = np.array([draw(generator) for _ in range(40_000)])
    assert seconds.mean() == pytest.approx(0.04, rel=0.02)
    assert seconds.std() == pytest.approx(0.04 * deviation, rel=0.05, abs=1e-15)
    assert (seconds >= 0).all()


def test_a_uniform_time_is_never_negative() -> None:
    ComputeConfig(distribution="uniform", sigma=1.0)
    ComputeConfig(distribution="lognormal", sigma=1.5)
    with pytest.raises(ValidationError, match="sigma above 1 would be negative at times"):
        ComputeConfig(distribution="uniform", sigma=1.5)


def times(seed: int = 1, name: str = "lognormal", **stragglers: float) -> ComputeTimes:
    slow = {int(worker[1:]): factor for worker, factor in stragglers.items()}
    return ComputeTimes(distribution(name, 0.1, 0.4), 20, slow, seed)


def test_a_worker_takes_its_share_of_a_batch_and_its_factor() -> None:
    compute = times(name="constant", w2=3.0)
    assert compute(0, 20) == pytest.approx(0.1)
    assert compute(0, 5) == pytest.approx(0.025)
    assert compute(1, 0) == 0.0
    assert compute(2, 10) == pytest.approx(0.15)


def test_streams_are_each_workers_own() -> None:
    """The order in which tasks are given out does not show in the times."""
    one, other, reseeded = times(), times(), times(seed=2)
    forward = {(worker, turn): one(worker, 20) for turn in range(3) for worker in range(4)}
    backward = {
        (worker, turn): other(worker, 20) for worker in reversed(range(4)) for turn in range(3)
    }
    assert forward == backward
    assert len(set(forward.values())) == len(forward)
    assert reseeded(0, 20) != forward[0, 0]


def test_the_servers_link_is_shared() -> None:
    """Messages of 100 bytes at 100 bytes a second: one after another, each 2 s later there."""
    network = Network(latency=2.0, bandwidth=100.0)
    assert [network.to_worker(0.0, 100) for _ in range(3)] == [3.0, 4.0, 5.0]
    assert network.to_worker(10.0, 50) == 12.5
    assert network.to_worker(10.0, 0) == 12.5  # behind the one before
    assert network.to_server(0.0, 100) == 3.0  # the other direction is free
    assert network.to_server(0.5, 100) == 4.0
    assert network.to_server(0.5, 0) == 4.0
    assert network.to_server(9.0, 100) == 12.0


def test_allreduce() -> None:
    network = Network(latency=2.0, bandwidth=100.0)
    assert network.allreduce(1, 1000) == 0.0
    assert network.allreduce(2, 1000) == 2 * (2.0 + 5.0)
    assert network.allreduce(10, 1000) == 2 * (2.0 + 9.0)
    assert network.to_worker(0.0, 0) == 2.0  # the server has no part in it
