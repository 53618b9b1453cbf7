"""The virtual cluster that a job's ``cluster`` section describes."""

from __future__ import annotations

from typing import Any

from psopt.config import JobConfig
from psopt.crew.base import Crew, Observer
from psopt.crew.sim import SimCrew
from psopt.crew.virtual import ComputeTimes, Network, distribution
from psopt.replica.replica import Replica


def virtual_crew(config: JobConfig[Any], replica: Replica, observe: Observer) -> Crew:
    """The workers of the job's ``cluster`` section, whose gradients ``replica`` computes."""
    cluster = config.cluster
    return SimCrew(
        replica,
        cluster.workers,
        compute_times(config),
        Network(cluster.latency, cluster.bandwidth),
        server_cost=cluster.server_cost,
        observer=observe,
        deaths=cluster.deaths,
    )


def compute_times(config: JobConfig[Any]) -> ComputeTimes:
    """Seconds that the workers of the job's ``cluster`` section compute."""
    cluster = config.cluster
    draw = distribution(cluster.compute.distribution, cluster.compute.mean, cluster.compute.sigma)
    seed = config.seed if cluster.seed is None else cluster.seed
    return ComputeTimes(draw, config.train.batch_size, cluster.stragglers, seed)
