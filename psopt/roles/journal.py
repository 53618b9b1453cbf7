"""What a run leaves behind while it runs: metrics, timeline, and lines for whoever watches."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from psopt.crew.base import Span
from psopt.data.plan import TicketBook
from psopt.record import MetricsWriter, Timeline
from psopt.roles.display import Display, Figures
from psopt.schemes.base import Update

_TOTALS = {
    "compute": "compute",
    "update": "compute",
    "wait": "wait",
    "send": "communication",
    "receive": "communication",
}


class Evaluated(Protocol):
    """What the journal keeps of an evaluation."""

    step: int
    seconds: float
    test_loss: float | None
    test_accuracy: float | None


class Journal:
    """Writes the record of one run.

    Args:
        metrics: rows of steps and evaluations.
        timeline: spans of every rank.
        display: lines or a progress bar.
        every_steps: interval of step rows.
    """

    def __init__(
        self, metrics: MetricsWriter, timeline: Timeline, display: Display, every_steps: int
    ) -> None:
        self._metrics, self._timeline, self._display = metrics, timeline, display
        self._every = every_steps
        self._base = 0.0
        self.staleness: Counter[int] = Counter()
        self.worker_seconds: dict[int, Counter[str]] = {}

    def step(self, update: Update, step: int, seconds: float, epoch: float, samples: int) -> None:
        """Record one update, after which ``epoch`` epochs are over and ``samples`` samples applied."""
        tally = update.tally
        loss = tally.loss / tally.count
        accuracy = None if tally.correct is None else tally.correct / tally.count
        if not tally.refused:
            self.staleness[update.staleness] += 1
            objective = update.figures.get("objective")
            self._display.step(Figures(step, epoch, samples, seconds, loss, accuracy, objective))
        if step % self._every == 0 or tally.refused:
            self._metrics.write(
                {
                    "kind": "refused" if tally.refused else "step",
                    "step": step,
                    "version": update.version,
                    "epoch": epoch,
                    "samples": samples,
                    "seconds": seconds,
                    "loss": loss,
                    "accuracy": accuracy,
                    "staleness": update.staleness,
                    "weight": update.weight,
                    "worker": update.worker,
                    **update.figures,
                }
            )

    def start(self, objective: float, epoch: float, seconds: float) -> None:
        """Record the objective at the initial parameters."""
        self._metrics.write(
            {
                "kind": "start",
                "step": 0,
                "epoch": epoch,
                "seconds": seconds,
                "objective": objective,
            }
        )

    def evaluation(self, progress: Evaluated, version: int, tickets: TicketBook) -> None:
        """Record an evaluation."""
        self._metrics.write(
            {
                "kind": "evaluation",
                "step": progress.step,
                "version": version,
                "epoch": tickets.epoch,
                "samples": tickets.samples,
                "seconds": progress.seconds,
                "test_loss": progress.test_loss,
                "test_accuracy": progress.test_accuracy,
            }
        )
        self._metrics.flush()
        self._display.evaluation(
            Figures(
                progress.step,
                tickets.epoch,
                tickets.samples,
                progress.seconds,
                progress.test_loss,
                progress.test_accuracy,
            )
        )

    def observe(self, rank: int, span: Span) -> None:
        """Record where a rank's time went."""
        kind, start, end = span
        start = max(start, 0.0)  # a worker has waited for the others to start, too
        if end <= start:
            return
        self._timeline.add(rank, kind, start + self._base, end + self._base)
        if rank > 0 and kind in _TOTALS:
            totals = self.worker_seconds.setdefault(rank - 1, Counter())
            totals[_TOTALS[kind]] += end - start  # type: ignore[assignment]

    def warn(self, message: str) -> None:
        """Say something loudly, and go on."""
        self._display.warn(message)

    def note(self, message: str) -> None:
        """Say something."""
        self._display.note(message)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._metrics.flush()
        self._timeline.flush()

    def sync(self) -> None:
        """Bring the rows that were flushed to the disk; another thread may do it."""
        self._metrics.sync()

    def close(self) -> None:
        """End all files and the display."""
        with contextlib.ExitStack() as others:
            others.callback(self._display.close)
            others.callback(self._timeline.close)
            self._metrics.close()

    def state(self) -> dict[str, Any]:
        """Totals and the number of rows so far, for a checkpoint; lists, of which it makes one text each."""
        return {
            "rows": self._metrics.rows,
            "staleness": [[value, count] for value, count in self.staleness.items()],
            "worker_seconds": [
                [worker, {kind: float(s) for kind, s in totals.items()}]
                for worker, totals in self.worker_seconds.items()
            ],
        }

    def restart(self) -> None:
        """Forget the rows of an earlier attempt that left no checkpoint."""
        self._metrics.truncate(0)

    def restore(self, state: Mapping[str, Any], seconds: float) -> None:
        """Go on from ``state``, at ``seconds`` of the training clock; later rows are dropped."""
        self.staleness = Counter(dict(state["staleness"]))
        self.worker_seconds = {
            worker: Counter(totals) for worker, totals in state["worker_seconds"]
        }
        self._base = seconds
        self._metrics.truncate(state["rows"])
