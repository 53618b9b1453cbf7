"""What a job's ``cluster`` section says of its workers, real or virtual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psopt.config import JobConfig
from psopt.crew.base import Crew, Observer
from psopt.crew.faults import Faults
from psopt.crew.patience import Patience, Terms
from psopt.crew.sim import SimCrew
from psopt.crew.virtual import ComputeTimes, Network, distribution
from psopt.replica.replica import Replica


def virtual_crew(
    config: JobConfig[Any],
    replica: Replica,
    observe: Observer,
    warn: Callable[[str], None] = lambda message: None,
) -> Crew:
    """The workers of the job's ``cluster`` section, whose gradients ``replica`` computes."""
    cluster = config.cluster
    evicts = cluster.deadline is not None and cluster.deadline.simulated
    return SimCrew(
        replica,
        cluster.workers,
        compute_times(config),
        Network(cluster.latency, cluster.bandwidth),
        server_cost=cluster.server_cost,
        observer=observe,
        faults=faults(config),
        terms=Terms(True, patience(config) if evicts else None, warn),
    )


def compute_times(config: JobConfig[Any]) -> ComputeTimes:
    """Seconds that the workers of the job's ``cluster`` section compute."""
    cluster = config.cluster
    draw = distribution(cluster.compute.distribution, cluster.compute.mean, cluster.compute.sigma)
    seed = config.seed if cluster.seed is None else cluster.seed
    return ComputeTimes(draw, config.train.batch_size, cluster.stragglers, seed)


def terms(config: JobConfig[Any], warn: Callable[[str], None], *, tolerant: bool) -> Terms:
    """How the loss of a real worker is taken; ``tolerant``: this MPI goes on without one."""
    goes_on = config.cluster.on_loss == "continue"
    return Terms(goes_on, patience(config), warn, goes_on and tolerant)


def patience(config: JobConfig[Any]) -> Patience | None:
    """How long a worker's reply may take."""
    deadline = config.cluster.deadline
    if deadline is None:
        return None
    return Patience(deadline.factor, deadline.least, deadline.first)


def faults(config: JobConfig[Any]) -> Faults:
    """What is to go wrong."""
    given = config.cluster.faults
    return Faults(
        deaths=given.deaths,
        deaths_in_message=given.deaths_in_message,
        stops={w: [(stop.at, stop.seconds) for stop in stops] for w, stops in given.stops.items()},
        delayed=given.delayed,
        delay=given.delay,
        doubled=given.doubled,
        damaged=given.damaged,
        poisoned=given.poisoned,
        seed=config.seed if given.seed is None else given.seed,
    )
