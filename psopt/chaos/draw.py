"""Fault schedules, drawn from a seed."""

from __future__ import annotations

import random
from typing import Any

from psopt.config.faults import DeadlineConfig, FaultsConfig


def schedule(seed: int, workers: int, horizon: float) -> FaultsConfig:
    """Faults of a virtual run: some of each kind, in any combination.

    Args:
        seed: the same seed gives the same schedule.
        workers: of the cluster.
        horizon: virtual seconds that the run takes without faults.
    """
    draw = random.Random(seed)
    ids = range(workers)

    def some(chance: float) -> list[int]:
        return [worker for worker in ids if draw.random() < chance]

    def moment() -> float:
        return draw.uniform(0.0, 1.2 * horizon)

    given: dict[str, Any] = {
        "deaths": {worker: moment() for worker in some(draw.choice((0.0, 0.2, 0.6)))},
        "stops": {
            worker: [
                {"at": moment(), "seconds": draw.expovariate(2.0 / horizon)}
                for _ in range(draw.randint(1, 3))
            ]
            for worker in some(draw.choice((0.0, 0.3)))
        },
        "delayed": draw.choice((0.0, 0.0, 0.05, 0.5)),
        "delay": draw.expovariate(10.0 / horizon),
        "doubled": draw.choice((0.0, 0.0, 0.1, 0.5)),
        "damaged": {worker: draw.choice((0.01, 0.1)) for worker in some(draw.choice((0.0, 0.2)))},
        "poisoned": {worker: draw.choice((0.01, 0.3)) for worker in some(draw.choice((0.0, 0.2)))},
        "deaths_in_message": {
            worker: draw.randint(1, 20) for worker in some(draw.choice((0.0, 0.2)))
        },
        "seed": seed,
    }
    return FaultsConfig(**given)


def deadline(horizon: float) -> DeadlineConfig:
    """Patience that a stop may well use up within the run."""
    return DeadlineConfig(factor=10.0, least=horizon / 8, first=2 * horizon, simulated=True)
