"""The sections of workers that fail: how long they are waited for, and faults to try it with."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from psopt.config.section import Section
from psopt.config.values import Duration, FiniteFloat


def _worker_id(key: Any) -> Any:
    """Turn a key into a worker id; keys of a YAML mapping arrive as text."""
    if isinstance(key, str):
        if not re.fullmatch(r"0|[1-9][0-9]{0,8}", key):
            raise ValueError(f"{key!r} is not a worker id: ids are whole numbers from 0")
        return int(key)
    return key


WorkerId = Annotated[int, BeforeValidator(_worker_id), Field(ge=0)]
VirtualTime = Annotated[FiniteFloat, Field(ge=0)]
Probability = Annotated[FiniteFloat, Field(ge=0, le=1)]


class DeadlineConfig(Section):
    """When a worker that does not answer is given up; learnt from what it has needed before."""

    factor: FiniteFloat = Field(
        default=10.0,
        gt=1,
        le=1e6,
        description="Times the longest that the worker took lately for a task of the kind.",
    )
    least: Duration = Field(default=60.0, description="But never before (seconds, or a text).")
    first: Duration = Field(
        default=14400.0, description="For its first task of a kind (seconds, or a text)."
    )
    simulated: bool = Field(
        default=False, description="Virtual workers, too; else these are waited for for ever."
    )


class Stop(Section):
    """A time at which a simulated worker stands still."""

    at: VirtualTime = Field(description="Seconds from the start of an attempt.")
    seconds: VirtualTime = Field(description="How long.")


class FaultsConfig(Section):
    """Faults on a seeded schedule, to try what a job survives; see also `psopt chaos`."""

    deaths: dict[WorkerId, VirtualTime] = Field(
        default={},
        description="Simulated: worker id to the time at which it dies (seconds from the start of an "
        "attempt).",
    )
    deaths_in_message: dict[WorkerId, Annotated[int, Field(ge=1)]] = Field(
        default={},
        description="Worker id to the number of the reply, from 1, in the middle of whose sending it dies.",
    )
    stops: dict[WorkerId, list[Stop]] = Field(
        default={}, description="Simulated: worker id to the times at which it stands still."
    )
    delayed: Probability = Field(
        default=0.0, description="Simulated: probability that a reply is held up."
    )
    delay: FiniteFloat = Field(
        default=0.0, ge=0, le=1e9, description="Simulated: by how much on average (seconds)."
    )
    doubled: Probability = Field(
        default=0.0, description="Simulated: probability that a reply arrives twice."
    )
    damaged: dict[WorkerId, Probability] = Field(
        default={},
        description="Worker id to the probability that a reply's bits are flipped on the way; real ranks "
        "notice it with `cluster.digest` only.",
    )
    poisoned: dict[WorkerId, Probability] = Field(
        default={},
        description="Worker id to the probability that the gradients of a task come out as not a number; not "
        "those that workers exchange among themselves.",
    )
    seed: int | None = Field(
        default=None, ge=0, description="Seed of the faults; the job's seed when not given."
    )
