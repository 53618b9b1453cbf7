"""The virtual cluster's clockwork: how long a task computes, and when a message arrives.

Messages to and from the server share its link: they pass one after another at ``bandwidth``, each
then needs ``latency``. Computing times are drawn for each worker from its own seeded stream, so
they do not depend on the order in which tasks are given out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from psopt.replica.tasks import Vectors

Draw = Callable[[np.random.Generator], float]


def distribution(name: str, mean: float, sigma: float) -> Draw:
    """A sampler of seconds with the given arithmetic mean.

    Args:
        name: ``constant``; ``lognormal`` (sigma: standard deviation of the logarithm);
            ``exponential``; ``uniform`` (from mean * (1 - sigma) to mean * (1 + sigma), sigma at
            most 1).
        mean: seconds.
        sigma: spread, without unit.
    """
    samplers: dict[str, Draw] = {
        "constant": lambda _: mean,
        "lognormal": lambda g: float(g.lognormal(math.log(mean) - sigma * sigma / 2, sigma)),
        "exponential": lambda g: float(g.exponential(mean)),
        "uniform": lambda g: float(g.uniform(mean * (1 - sigma), mean * (1 + sigma))),
    }
    return samplers[name]


class ComputeTimes:
    """Seconds that a worker computes.

    Args:
        draw: seconds for one full batch.
        batch_size: samples of a full batch; a smaller one takes its share.
        stragglers: slowdown factors by worker.
        seed: of the workers' streams.
    """

    def __init__(
        self, draw: Draw, batch_size: int, stragglers: Mapping[int, float], seed: int
    ) -> None:
        self._draw, self._batch, self._stragglers, self._seed = draw, batch_size, stragglers, seed
        self._streams: dict[int, np.random.Generator] = {}

    def __call__(self, worker: int, samples: int) -> float:
        """Seconds that ``worker`` takes for a gradient over ``samples``."""
        if worker not in self._streams:
            self._streams[worker] = np.random.default_rng([self._seed, worker])
        seconds = self._draw(self._streams[worker]) * samples / self._batch
        return seconds * self._stragglers.get(worker, 1.0)


@dataclass(slots=True)
class Network:
    """The server's link to the workers.

    Attributes:
        latency: seconds.
        bandwidth: bytes a second, each direction.
    """

    latency: float
    bandwidth: float
    _out_free: float = field(default=0.0, init=False)
    _in_free: float = field(default=0.0, init=False)

    def to_worker(self, now: float, size: int) -> float:
        """When ``size`` bytes that the server sends at ``now`` are at the worker."""
        self._out_free = max(self._out_free, now) + size / self.bandwidth
        return self._out_free + self.latency

    def to_server(self, sent: float, size: int) -> float:
        """When ``size`` bytes that a worker sends at ``sent`` are at the server. Call in order of ``sent``."""
        self._in_free = max(self._in_free, sent + self.latency) + size / self.bandwidth
        return self._in_free

    def allreduce(self, workers: int, size: int) -> float:
        """Seconds of a bandwidth-optimal allreduce among ``workers`` (reduce-scatter, then allgather)."""
        share = (workers - 1) / workers
        return 0.0 if workers == 1 else 2 * (self.latency + share * size / self.bandwidth)


def nbytes(vectors: Vectors) -> int:
    """Bytes of a message with these vectors."""
    return sum(vector.nbytes for vector in vectors)
