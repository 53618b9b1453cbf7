"""Fault schedules on virtual workers: thousands of courses of one job, each from a seed.

A trial runs the job's scheme on its virtual cluster with the faults of its seed, and looks after every
step whether all invariants hold (``psopt.chaos.audit``). A synchronous scheme that has refused no update
has to end with the bits of the run without faults, whoever was lost on the way; but for two workers
that send poison, who may confirm each other's, or one that is alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from psopt import job
from psopt.chaos.audit import AuditedBook, Broken, Course
from psopt.chaos.draw import deadline, schedule
from psopt.config import JobConfig
from psopt.config.faults import FaultsConfig
from psopt.crew.base import WorkerLost
from psopt.crew.cluster import virtual_crew
from psopt.optim.finite import all_finite
from psopt.roles.progress import Progress
from psopt.roles.schedule import Schedule
from psopt.roles.server import ParameterServer
from psopt.schemes.asynchronous import Asynchronous
from psopt.schemes.base import Context, Diverged, Limit, Scheme

_MOST_STEPS = 100_000
_FEW = 8  # updates between two looks


@dataclass(frozen=True, slots=True)
class Trial:
    """How one course ended.

    Attributes:
        seed: of the schedule.
        end: ``completed``, ``all lost`` or ``diverged``; ``broken`` where an invariant does not hold.
        problem: which.
        sha: of the final parameters.
        seconds: virtual ones.
        lost: workers that were lost.
        late: replies that were refused.
        refused: updates that were.
        returned: tickets that were issued again.
    """

    seed: int
    end: str
    problem: str = ""
    sha: str = ""
    seconds: float = 0.0
    lost: dict[int, str] = field(default_factory=dict)
    late: int = 0
    refused: int = 0
    returned: int = 0


class Bench:
    """Runs trials of one job.

    Args:
        config: the job.
    """

    def __init__(self, config: JobConfig[Scheme]) -> None:
        self._config = config.model_copy(update={"on_bad_update": "skip"})
        self._parts, self._beside = job.assemble(config), job.assemble(config)
        self._start = [vector.clone() for vector in self._parts.model.vectors]
        self.calm = self._play(-1, FaultsConfig())

    def trials(self, first: int, count: int) -> Iterator[Trial]:
        """Those of ``count`` seeds from ``first`` on."""
        for seed in range(first, first + count):
            yield self.trial(seed)

    def trial(self, seed: int) -> Trial:
        """The one of ``seed``."""
        return self.play(seed, schedule(seed, self._config.cluster.workers, self.calm.seconds))

    def play(self, seed: int, faults: FaultsConfig) -> Trial:
        """A course with ``faults``, compared with the one without any."""
        trial = self._play(seed, faults)
        synchronous = not isinstance(self._config.scheme, Asynchronous)
        alone = len(trial.lost) >= self._config.cluster.workers - 1
        confirmed = len(faults.poisoned) > (0 if alone else 1)
        calm = not trial.refused and trial.end == "completed"
        same_bits = synchronous and calm and not confirmed
        if same_bits and trial.sha != self.calm.sha:
            return Trial(seed, "broken", "the parameters are not those of the run without faults")
        return trial

    def _play(self, seed: int, faults: FaultsConfig) -> Trial:
        update: dict[str, Any] = {"faults": faults}
        if seed >= 0:
            update["deadline"] = deadline(self.calm.seconds)
        cluster = self._config.cluster.model_copy(update=update)
        config = self._config.model_copy(update={"cluster": cluster})
        for vector, start in zip(self._parts.model.vectors, self._start, strict=True):
            vector.copy_(start)
        course = _Course(config, self._parts, self._beside)
        end, problem = "broken", ""
        try:
            end = course.run()
        except (Broken, RuntimeError, ValueError, KeyError, IndexError) as error:
            problem = f"{type(error).__name__}: {error}"
        crew, book = course.crew, course.book
        return Trial(
            seed,
            end,
            problem,
            course.server.sha256(),
            crew.now(),
            dict(crew.fates),
            crew.late,
            sum(book.refusals.values()),
            book.returns,
        )


class _Course:
    """One run, step by step."""

    def __init__(self, config: JobConfig[Scheme], parts: job.Parts, beside: job.Parts) -> None:
        train = config.train
        rows = len(parts.data.train)
        self._scheme = config.scheme
        self.book = AuditedBook(config.seed, rows, train.batch_size, train.epochs)
        self.server = ParameterServer(parts.model, parts.optimizer(parts.model))
        self.crew = virtual_crew(config, beside.replica(), lambda rank, span: None)
        self._context = Context(
            self.crew,
            self.server,
            self.book,
            skip_bad=True,
            l2=config.loss.l2,
            evict_after=config.cluster.evict_after,
        )
        self._schedule, self._progress = Schedule(config, rows), Progress()
        self._stopped = False
        sync = getattr(config.scheme, "sync_every", None)
        barrier = getattr(config.scheme, "sync", "") == "barrier"
        self._versions = Course(sync + config.cluster.workers if sync and barrier else None)

    def run(self) -> str:
        """To its end, of one kind or another."""
        scheme, context = self._scheme, self._context
        end = "completed"
        state = scheme.init(context)
        try:
            for _ in range(_MOST_STEPS):
                updates = scheme.step(context, state, self._limit())
                self._look(updates)
                if not updates or self._may_stop(updates):
                    break
            else:
                raise Broken(f"the run does not end within {_MOST_STEPS} steps")
            scheme.home(context, state)
        except WorkerLost:
            end = "all lost"
            if self.crew.workers:
                raise
        except Diverged:
            end = "diverged"
        self.book.check(complete=end == "completed" and not self._stopped)
        return end

    def _limit(self) -> Limit:
        limit = self._schedule.limit((self._progress.step, self.book.position))
        return Limit(min(_FEW, limit.steps), limit.samples)

    def _may_stop(self, updates: Any) -> bool:
        """Whether the job's ``stop`` ends it here, by steps or by the objective: faults leave these alone."""
        progress = self._progress
        progress.step += sum(not update.tally.refused for update in updates)
        progress.objective = updates[-1].figures.get("objective")
        self._stopped = self._schedule.reason_to_stop(progress) is not None
        return self._stopped

    def _look(self, updates: Any) -> None:
        self._versions.see(updates, self.server.version)
        self.book.check(complete=False)
        with torch.no_grad():
            if not all_finite(self.server.vectors):
                raise Broken("the server's parameters are not finite")
