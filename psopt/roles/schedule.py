"""What is due when: stopping, evaluations, checkpoints."""

from __future__ import annotations

import math
from typing import Any

from psopt.config import JobConfig
from psopt.roles.progress import Progress
from psopt.schemes.base import Limit

Position = tuple[int, int]
"""Steps made, and samples used."""


class Schedule:
    """What a job's config says of when.

    Args:
        config: the job.
        rows: samples of an epoch.
    """

    def __init__(self, config: JobConfig[Any], rows: int) -> None:
        self._config, self._rows = config, rows

    def reason_to_stop(self, progress: Progress) -> str | None:
        """Why the run ends here; None: it goes on."""
        stop = self._config.stop
        current = progress.evaluated_at == progress.step
        if current and reached(progress.test_accuracy, stop.test_accuracy):
            return "test_accuracy"
        if current and reached(stop.test_loss, progress.test_loss):
            return "test_loss"
        if reached(stop.objective, progress.objective):
            return "objective"
        if stop.steps is not None and progress.step >= stop.steps:
            return "steps"
        if stop.seconds is not None and progress.seconds >= stop.seconds:
            return "seconds"
        return None

    def limit(self, position: Position) -> Limit:
        """How far the scheme may go before something is due here."""
        config, (step, samples) = self._config, position
        intervals = (config.checkpoint.every_steps, config.evaluate.every_steps)
        steps = [config.stop.steps, *((step // e + 1) * e for e in intervals if e)]
        due = min((s for s in steps if s is not None), default=step + (1 << 30)) - step
        return Limit(max(1, due), self._samples_to_evaluation(samples))

    def _samples_to_evaluation(self, samples: int) -> int:
        every = self._config.evaluate.every_epochs
        if every is None:
            return 1 << 62
        interval = every * self._rows
        return max(1, math.ceil((math.floor(samples / interval + 1e-9) + 1) * interval) - samples)

    def checkpoint_due(self, before: Position, now: Position) -> bool:
        """Whether one is due between two positions."""
        return _crossed(self._config.checkpoint.every_steps, before[0], now[0])

    def evaluation_due(self, before: Position, now: Position) -> bool:
        """Whether one is due between two positions."""
        evaluate = self._config.evaluate
        if evaluate.every_epochs is None:
            return _crossed(evaluate.every_steps, before[0], now[0])
        interval = evaluate.every_epochs * self._rows
        done, earlier = (math.floor(at[1] / interval + 1e-9) for at in (now, before))
        return done > earlier


def reached(value: float | None, target: float | None) -> bool:
    """Whether there is a value, and it is at least the target, if there is one."""
    return value is not None and target is not None and value >= target


def _crossed(every: int | None, before: int, now: int) -> bool:
    return every is not None and now // every > before // every
