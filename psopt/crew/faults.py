"""Faults on a schedule, to try what a run survives: the same seed gives the same faults.

Virtual workers have all of them. On real ranks a worker poisons its gradients, damages its messages and
dies in one by the same draws; other deaths, and stops, are signals there, which ``psopt chaos`` sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from psopt.replica.batch_tasks import LocalSolve, ShardGradient, Slices
from psopt.replica.tasks import Gradient, Task, Vectors

_POISONED = (Gradient, Slices, ShardGradient, LocalSolve)

FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a message.

    Attributes:
        delay: seconds that it takes longer.
        again: seconds after which it arrives a second time; None: it does not.
        damaged: some of its bits are flipped.
        deadly: its worker dies while it sends it.
    """

    delay: float = 0.0
    again: float | None = None
    damaged: bool = False
    deadly: bool = False


@dataclass(frozen=True)
class Faults:
    """What goes wrong, and when.

    Attributes:
        deaths: second at which a worker dies.
        deaths_in_message: number of the reply, from 1, in the middle of whose sending a worker dies.
        stops: (second, how long) of the times at which a worker stands still.
        delayed: probability that a reply is held up.
        delay: seconds by which it is on average (exponential).
        doubled: probability that a reply arrives twice.
        damaged: probability that a reply's bits are flipped on the way, by worker.
        poisoned: probability that the gradients of a task are not numbers, by worker.
        seed: of all draws.
    """

    deaths: Mapping[int, float] = field(default_factory=dict)
    deaths_in_message: Mapping[int, int] = field(default_factory=dict)
    stops: Mapping[int, Sequence[tuple[float, float]]] = field(default_factory=dict)
    delayed: float = 0.0
    delay: float = 0.0
    doubled: float = 0.0
    damaged: Mapping[int, float] = field(default_factory=dict)
    poisoned: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0
    _replies: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _streams: dict[tuple[int, int], np.random.Generator] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def death(self, worker: int) -> float:
        """When it dies."""
        return self.deaths.get(worker, FOREVER)

    def through(self, worker: int, start: float, seconds: float) -> tuple[float, float]:
        """Start and end of computing for ``seconds`` from ``start``, standing still in between."""
        end = start + seconds
        for since, pause in sorted(self.stops.get(worker, ())):
            if since <= start < since + pause:
                start, end = since + pause, end + since + pause - start
            elif start < since < end:
                end += pause
        return start, end

    def message(self, worker: int) -> Fate:
        """What becomes of the next reply of ``worker``."""
        number = self._replies[worker] = self._replies.get(worker, 0) + 1
        stream = self._stream(worker, 0)
        late, twice, damaged = stream.random(3)
        delay = float(stream.exponential(self.delay)) if late < self.delayed else 0.0
        again = float(stream.exponential(max(self.delay, 1e-3))) if twice < self.doubled else None
        deadly = number == self.deaths_in_message.get(worker)
        return Fate(delay, again, damaged < self.damaged.get(worker, 0.0), deadly)

    def poisons(self, worker: int, task: Task) -> bool:
        """Whether the gradients of ``task`` come out as not a number, as from a fault in the memory."""
        probability = self.poisoned.get(worker, 0.0)
        if not probability or not isinstance(task, _POISONED):
            return False
        return bool(self._stream(worker, 1).random() < probability)

    def _stream(self, worker: int, use: int) -> np.random.Generator:
        key = (worker, use)
        if key not in self._streams:
            self._streams[key] = np.random.default_rng([self.seed, worker, use])
        return self._streams[key]


def damaged(vectors: Vectors) -> Vectors:
    """A copy whose first bit is flipped."""
    first = vectors[0].clone()
    first.view(-1).view(torch.uint8)[0] ^= 1
    return (first, *vectors[1:])


NONE: Any = Faults()
"""Nothing goes wrong."""
