"""One run of the study: a job on the virtual cluster in this process, without a run directory."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psopt import job
from psopt.config import JobConfig
from psopt.data.layout import resolve
from psopt.roles.display import Several
from psopt.schemes.base import Scheme
from psopt.study.virtual import run


@dataclass(frozen=True)
class Setting:
    """What all runs of a study have in common.

    Attributes:
        data: HDF5 file, or ``sample``.
        model: name in the zoo.
        batch: samples of a gradient.
        momentum: of SGD, for every scheme.
        target: test accuracy whose time is measured.
        cap: a run ends after so many gradients.
        test_rows: of the test set, the first ones.
        every: gradients from one evaluation to the next; at least four of every worker.
        mean, sigma: seconds of a gradient, lognormal.
        slowdown: of the straggler.
        sync_every: versions between WASP's forced syncs.
    """

    data: str
    model: str = "lenet5"
    batch: int = 32
    momentum: float = 0.0
    target: float = 0.97
    cap: int = 24_000
    test_rows: int = 1000
    every: int = 32
    mean: float = 0.05
    sigma: float = 0.3
    slowdown: float = 4.0
    sync_every: int = 200


@dataclass(frozen=True, order=True)
class Trial:
    """One run.

    Attributes:
        scheme: its name.
        workers: how many.
        straggling: worker 0 is slower.
        power: the learning rate is 2 to this power.
        seed: of parameters, batches and computing times.
    """

    scheme: str
    workers: int
    straggling: bool
    power: int
    seed: int

    @property
    def rate(self) -> float:
        """Learning rate."""
        return 2.0**self.power


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        seconds: virtual, until the target accuracy was first seen; None when it never was.
        bound: the run was to end at this virtual time; None for the cap on gradients only.
        accuracy: the last one that was measured; None when the run diverged before the first.
        loss: the last one on the test rows; None where it was not finite.
        gradients: applied.
        diverged: a gradient was not finite.
        staleness: mean over the updates.
        computing: share of their time that the workers computed, the mean of all.
        wall: seconds that this took.
    """

    seconds: float | None
    bound: float | None
    accuracy: float | None
    loss: float | None
    gradients: int
    diverged: bool
    staleness: float
    computing: float
    wall: float

    @property
    def lost(self) -> bool:
        """The run ended at an error like that of guessing, or in numbers that are none."""
        return self.diverged or self.accuracy is None or self.accuracy < 0.25


Results = Mapping[Trial, Outcome]


def run_trial(setting: Setting, trial: Trial, bound: float | None = None) -> Outcome:
    """Train until the target, the cap or ``bound``.

    Args:
        setting: of the study.
        trial: the run.
        bound: virtual seconds at which to give up.
    """
    began = time.perf_counter()
    config = job_of(setting, trial, bound)
    coordinator = run(config, Several([])).coordinator
    progress, staleness = coordinator.progress, coordinator.journal.staleness
    applied = max(1, sum(staleness.values()))
    spent = coordinator.journal.worker_seconds.values()
    computed = sum(times["compute"] for times in spent)
    return Outcome(
        seconds=progress.seconds_to_target,
        bound=bound,
        accuracy=progress.test_accuracy,
        loss=progress.test_loss,
        gradients=-(-coordinator.tickets.samples // setting.batch),
        diverged=progress.refused > 0,
        staleness=sum(value * count for value, count in staleness.items()) / applied,
        computing=computed / max(1e-9, sum(sum(times.values()) for times in spent)),
        wall=time.perf_counter() - began,
    )


def job_of(setting: Setting, trial: Trial, bound: float | None = None) -> JobConfig[Scheme]:
    """The job of a run."""
    synchronous = trial.scheme == "bsp"
    a_step = trial.workers if synchronous else 1  # gradients in an update
    options: dict[str, Any] = {"name": trial.scheme}
    if trial.scheme == "wasp":
        options["sync_every"] = setting.sync_every
    written = {
        "name": f"{trial.scheme}-{trial.workers}",
        "seed": trial.seed,
        "model": {"name": setting.model},
        "data": {"path": str(resolve(setting.data)), "test_limit": setting.test_rows},
        "scheme": options,
        "optimizer": {"name": "SGD", "lr": trial.rate, "momentum": setting.momentum},
        "train": {"epochs": 10_000, "batch_size": setting.batch},
        "stop": {
            "test_accuracy": setting.target,
            "steps": max(1, setting.cap // a_step),
            "seconds": bound,
        },
        "evaluate": {
            "every_steps": max(1, max(setting.every, 4 * trial.workers) // a_step),
            "batch_size": 100,
        },
        "log": {"every_steps": 1 << 30, "timeline_events": 0},
        "cluster": {
            "workers": trial.workers,
            "compute": {
                "distribution": "lognormal",
                "mean": setting.mean,
                "sigma": setting.sigma,
            },
            "stragglers": {"0": setting.slowdown} if trial.straggling else {},
        },
    }
    config: JobConfig[Scheme] = job.Job.model_validate_json(json.dumps(written))
    return config
