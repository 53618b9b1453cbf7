"""The contract of a crew, over all its implementations."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from psopt.crew.sim import SimCrew
from psopt.crew.virtual import ComputeTimes, Network, distribution
from tests.crew.contract import CHECKS, Case

WORKERS = (1, 2, 3)


@cache
def simulated(name: str, workers: int) -> Any:
    """Result of a check on a virtual cluster whose workers differ in speed."""
    setup = CHECKS[name].setup
    times = ComputeTimes(distribution("lognormal", 0.01, 0.5), setup.batch, {0: 3.0}, seed=5)
    crew = SimCrew(setup.replica(), workers, times, Network(1e-4, 1e8), server_cost=1e-4)
    try:
        return CHECKS[name].run(Case(crew, setup))
    finally:
        crew.close()


@pytest.mark.parametrize("workers", [*WORKERS, 6])
@pytest.mark.parametrize("name", CHECKS)
def test_simulated(name: str, workers: int) -> None:
    result = simulated(name, workers)
    if CHECKS[name].everywhere:
        assert result == simulated(name, 1)


@pytest.mark.mpi
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", CHECKS)
def test_real(name: str, workers: int, real_ranks: dict[str, Any]) -> None:
    """On ranks, with the results of the virtual cluster."""
    found = real_ranks.get(f"{name}/{workers}", "not run: the job has ended before")
    assert isinstance(found, dict), f"\n{found}"
    assert found["result"] == simulated(name, workers)
