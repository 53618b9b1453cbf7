"""The section of the workers, real or simulated."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from psopt.config.faults import DeadlineConfig, FaultsConfig, WorkerId
from psopt.config.problems import Problem, SectionError
from psopt.config.section import Section
from psopt.config.values import FiniteFloat


class ComputeConfig(Section):
    """Simulated time that a worker takes for one batch of `train.batch_size` samples."""

    distribution: Literal["constant", "lognormal", "exponential", "uniform"] = Field(
        default="lognormal", description="Distribution of the compute time."
    )
    mean: FiniteFloat = Field(
        default=0.05, gt=0, le=1e9, description="Mean compute time (seconds)."
    )
    sigma: FiniteFloat = Field(
        default=0.3,
        ge=0,
        le=100,
        description="Spread relative to the mean: of the logarithm for lognormal, "
        "half the width for uniform; unused by the others (no unit).",
    )

    @model_validator(mode="after")
    def _no_negative_times(self) -> Self:
        if self.distribution == "uniform" and self.sigma > 1:
            message = "a uniform time with a sigma above 1 would be negative at times"
            raise SectionError([Problem(("sigma",), message)])
        return self


Slowdown = Annotated[FiniteFloat, Field(gt=0, le=1e6)]


class ClusterConfig(Section):
    """The number of workers, and the virtual cluster of a simulated run."""

    workers: int = Field(
        default=2, ge=1, le=100_000, description="Number of workers (ranks less one)."
    )
    compute: ComputeConfig = Field(
        default=ComputeConfig(), description="Simulated compute time of a batch."
    )
    stragglers: dict[WorkerId, Slowdown] = Field(
        default={}, description="Worker id to slowdown factor (2.0 takes twice as long)."
    )
    latency: FiniteFloat = Field(
        default=5e-6, ge=0, le=1e9, description="Simulated network latency of a message (seconds)."
    )
    bandwidth: FiniteFloat = Field(
        default=5e9, ge=1e-3, description="Simulated network bandwidth (bytes/second)."
    )
    server_cost: FiniteFloat = Field(
        default=0.0,
        ge=0,
        le=1e9,
        description="Simulated time of the server for one update (seconds).",
    )
    on_loss: Literal["abort", "continue", "restart"] = Field(
        default="abort",
        description="When a rank dies: end the job; go on with the other workers where MPI can (Open "
        "MPI 5 under mpirun --with-ft ulfm); or have `psopt run -n` start it again from its last "
        "checkpoint with the workers that are left, under any MPI. A virtual cluster goes on.",
    )
    max_restarts: int = Field(
        default=3,
        ge=0,
        le=1_000_000,
        description="Most restarts of one `psopt run -n` with `on_loss: restart`.",
    )
    min_workers: int = Field(
        default=1,
        ge=1,
        le=100_000,
        description="Fewest workers that a run goes on or is restarted with; with fewer it ends as "
        "failed, after a checkpoint where it still can.",
    )
    deadline: DeadlineConfig | None = Field(
        default=DeadlineConfig(),
        description="When a worker that does not answer is lost; null: never.",
    )
    evict_after: int | None = Field(
        default=None,
        ge=1,
        description="Go on without a worker when so many of its updates were refused; null: keep it.",
    )
    digest: bool = Field(
        default=False,
        description="Send checksums with every message between coordinator and workers; a worker with which "
        "one arrives damaged is lost.",
    )
    faults: FaultsConfig = Field(
        default=FaultsConfig(), description="Faults, to try what the job survives."
    )
    emulate: bool = Field(
        default=False,
        description="On real ranks: sleep after each task until as much time has passed as the "
        "virtual cluster would take for its samples; for experiments with stragglers on one machine.",
    )
    seed: int | None = Field(
        default=None, ge=0, description="Seed of simulated times; the job's seed when not given."
    )

    @model_validator(mode="after")
    def _workers_exist(self) -> Self:
        named: dict[tuple[str, ...], dict[int, Any]] = {("stragglers",): self.stragglers}
        for key in ("deaths", "deaths_in_message", "stops", "damaged", "poisoned"):
            named["faults", key] = getattr(self.faults, key)
        problems = [
            Problem(
                (*key, worker),
                f"there is no worker {worker}: ids go from 0 to {self.workers - 1}",
                at_key=True,
            )
            for key, workers in named.items()
            for worker in workers
            if worker >= self.workers
        ]
        if self.min_workers > self.workers:
            problems.append(Problem(("min_workers",), f"there are {self.workers} workers only"))
        if problems:
            raise SectionError(problems)
        return self
