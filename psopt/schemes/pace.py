"""How fast each worker does a slice, measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from psopt.crew.base import Reply

_SMOOTHING = 0.3  # weight of the newest measurement
_LEAST = 1e-9  # seconds


@dataclass(slots=True)
class Pace:
    """Kept from evaluation to evaluation; results do not depend on it.

    Attributes:
        seconds: that a slice takes, by worker; only workers that were measured.
        speed: slices a second of these workers together.
        message: seconds that a task costs beside its slices.
    """

    seconds: dict[int, float] = field(default_factory=dict)
    speed: float = 0.0
    message: float = 0.0

    def of(self, worker: int) -> float:
        """Seconds a slice of ``worker``: its own, or else the others' (0 when nobody was measured)."""
        own = self.seconds.get(worker)
        return own if own is not None else self.together(1, 1)

    def together(self, slices: int, workers: int) -> float:
        """Seconds that ``workers`` workers need for ``slices`` slices."""
        return slices * len(self.seconds) / (self.speed * workers) if self.seconds else 0.0

    def learn(self, reply: Reply, took: float | None = None) -> None:
        """Take a task of some slices into account, which came back ``took`` seconds after it was given."""
        result = reply.result
        seconds = max(result.seconds / len(result.tallies), _LEAST)
        before = self.seconds.get(reply.worker)
        if before is not None:
            seconds = before + _SMOOTHING * (seconds - before)
        self.forget(reply.worker)
        self.seconds[reply.worker] = seconds
        self.speed += 1.0 / seconds
        if took is not None:
            self.message += _SMOOTHING * (max(0.0, took - result.seconds) - self.message)

    def forget(self, worker: int) -> None:
        """The worker is gone."""
        seconds = self.seconds.pop(worker, None)
        if seconds is not None:
            self.speed = self.speed - 1.0 / seconds if self.seconds else 0.0
