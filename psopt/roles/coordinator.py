"""THE coordinator loop: step, evaluate, log, checkpoint, stop. Schemes supply the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from psopt.config import JobConfig
from psopt.crew.base import Crew, Evaluate, Tally, WorkerLost, deal
from psopt.data.plan import TicketBook
from psopt.optim.finite import all_finite, is_finite
from psopt.record import CheckpointError, CheckpointStore, Tree
from psopt.roles.journal import Journal
from psopt.roles.progress import Progress
from psopt.roles.saving import Mark, Saver
from psopt.roles.schedule import Schedule, reached
from psopt.roles.server import ParameterServer
from psopt.schemes.base import Context, Diverged, Scheme, Spoilt, Update
from psopt.stopping import StopRequest


class Coordinator:
    """Runs one job to its end.

    Args:
        config: the job.
        crew: the workers, open.
        server: parameters and optimizer.
        tickets: the account of batches.
        test_samples: rows of the test split.
        journal: what is recorded.
        store: checkpoints.
        stop: whether the run is to end at the next step.
    """

    def __init__(
        self,
        config: JobConfig[Scheme],
        crew: Crew,
        server: ParameterServer,
        tickets: TicketBook,
        *,
        test_samples: int,
        journal: Journal,
        store: CheckpointStore,
        stop: StopRequest | None = None,
    ) -> None:
        self.config, self.crew, self.server, self.tickets = config, crew, server, tickets
        self.scheme, self.journal = config.scheme, journal
        self.saver = Saver(store, journal)
        self.progress = Progress()
        self._schedule = Schedule(config, tickets.rows)
        self.context = Context(
            crew,
            server,
            tickets,
            config.on_bad_update == "skip",
            journal.observe,
            journal.warn,
            config.loss.l2,
            self._begin,
            config.cluster.evict_after,
            config.bad_update_factor,
        )
        self._test_samples, self._stop = test_samples, stop or StopRequest()
        self._workers = crew.workers
        self._set_target()
        self._clock_base = 0.0
        self.state: Any = None

    def run(self) -> tuple[str, str]:
        """Train until a reason to stop.

        Returns:
            Status and reason, as in the summary; ``failed`` is a run whose end could not be saved.
        """
        self.state = self.scheme.init(self.context) if self.state is None else self.state
        with self.saver:
            status, reason = self._course()
        self.crew.close()
        return status, reason

    def _course(self) -> tuple[str, str]:
        """The run but for its beginning and its end; status and reason."""
        try:
            self.saver.rehearse(self._tree())
            status, reason = "completed", self._train()
            if reason == self._stop.name:  # there is little time
                status = "stopped"
            else:
                self._evaluate()
            self._checkpoint()
            if (problem := self.saver.wait()) is not None:
                status, reason = "failed", problem
        except (WorkerLost, CheckpointError) as error:
            status, reason = "failed", str(error)
            self._note_losses()
        except Diverged as error:
            status, reason = "diverged", str(error)
            self._account(error.updates)
            self.progress.refused += not isinstance(error, Spoilt)
            self.scheme.home(self.context, self.state)
        return status, reason

    def restore(self, tree: Tree) -> None:
        """Go on from a checkpoint.

        Raises:
            ValueError: it belongs to another model, optimizer, or batch plan.
        """
        self.server.restore(tree)
        self.tickets.restore(tree["tickets"])
        self.progress = Progress(**tree["progress"])
        self.context.offences.restore(tree["offences"])
        self.journal.restore(tree["journal"], self.progress.seconds)
        self.state = self.scheme.init(self.context)
        self.scheme.restore(self.state, tree["scheme"])
        self._clock_base = self.progress.seconds
        self._set_target()
        self.saver.resumed(self._mark())

    def _train(self) -> str:
        """The loop."""
        while (reason := self._reason_to_stop()) is None:
            before = self._position()
            try:
                updates = self.scheme.step(self.context, self.state, self._schedule.limit(before))
            finally:
                self.context.disprove(self.crew.disproved())
            self._account(updates)
            self._watch()
            self.saver.look()
            if not updates:
                return self._schedule.reason_to_stop(self.progress) or self.scheme.reason(
                    self.state
                )
            if self._schedule.evaluation_due(before, self._position()):
                self._evaluate()
            if self._schedule.checkpoint_due(before, self._position()):
                self._checkpoint()
        return reason

    def _reason_to_stop(self) -> str | None:
        return self._schedule.reason_to_stop(self.progress) or self._stop.name

    def _watch(self) -> None:
        """See who is gone.

        Raises:
            WorkerLost: fewer are left than the job wants.
        """
        if not self._note_losses():
            return
        workers, least = self.crew.workers, self.config.cluster.min_workers
        if len(workers) < least:
            if workers:
                self._checkpoint()
            problem = self.saver.wait()
            raise WorkerLost(
                f"workers left: {len(workers)}, cluster.min_workers is {least}: resume with more"
                + (f"; {problem}" if problem else "")
            )

    def _note_losses(self) -> bool:
        """Take down who is gone since; whether anybody is."""
        workers = self.crew.workers
        gone = [worker for worker in self._workers if worker not in workers]
        self._workers = workers
        self.progress.lost += gone
        return bool(gone)

    def _account(self, updates: Sequence[Update]) -> None:
        progress, tickets = self.progress, self.tickets
        # The account of tickets is that after the last update already.
        done = tickets.position - sum(u.samples for u in updates)
        applied = tickets.samples - sum(u.samples for u in updates if not u.tally.refused)
        for update in updates:
            progress.seconds = self._clock(update.seconds)
            done += update.samples
            if update.tally.refused:
                progress.refused += 1
            else:
                progress.step += 1
                progress.objective = update.figures.get("objective")
                self._note_target(reached(self.config.stop.objective, progress.objective))
                applied += update.samples
            epoch = done / tickets.rows
            self.journal.step(update, progress.step, progress.seconds, epoch, applied)

    def _begin(self, objective: float) -> bool:
        self.progress.objective = objective
        self.progress.seconds = self._clock(self.crew.now())
        self.journal.start(objective, self.tickets.epoch, self.progress.seconds)
        enough = reached(self.config.stop.objective, objective)
        self._note_target(enough)
        return enough

    def _position(self) -> tuple[int, int]:
        return self.progress.step, self.tickets.position

    def _evaluate(self) -> None:
        """Loss and accuracy over the test split, by all workers; chunks are summed in order."""
        progress = self.progress
        if progress.evaluated_at == progress.step:
            return
        self._bring_home()
        start = self.crew.now()
        chunks = -(-self._test_samples // self.config.evaluate.batch_size)
        blocks = [block for block in deal(chunks, len(self.crew.workers)) if block]
        tasks = [Evaluate(self.server.version, block.start, block.stop) for block in blocks]
        tallies = [t for reply in self.crew.gather(tasks) for t in reply.result.tallies]
        self._note_evaluation(tallies)
        spent = self.crew.now() - start
        progress.evaluation_seconds += spent
        self._clock_base -= spent
        self.journal.observe(0, ("evaluate", start, start + spent))
        self.journal.evaluation(progress, self.server.version, self.tickets)
        if progress.test_loss is not None and not math.isfinite(progress.test_loss):
            raise Spoilt(f"the test loss is {progress.test_loss} at step {progress.step}")

    def _bring_home(self) -> None:
        """Have the server hold the newest parameters, which are fit to be measured and saved."""
        self.scheme.home(self.context, self.state)
        self.context.disprove(self.crew.disproved())
        if not is_finite(self.server.model.parameters):
            raise Spoilt(f"the parameters are not finite at step {self.progress.step}")
        if not all_finite(self.server.vectors):
            raise Spoilt(f"the model's buffers are not finite at step {self.progress.step}")

    def _note_evaluation(self, tallies: Sequence[Tally]) -> None:
        progress, count = self.progress, sum(tally.count for tally in tallies)
        progress.test_loss = sum(tally.loss for tally in tallies) / count
        progress.evaluated_at = progress.step
        self._note_target(reached(self.config.stop.test_loss, progress.test_loss))
        correct = [tally.correct for tally in tallies if tally.correct is not None]
        if len(correct) < len(tallies):
            return
        accuracy = progress.test_accuracy = sum(correct) / count
        progress.best_test_accuracy = max(progress.best_test_accuracy or 0.0, accuracy)
        self._note_target(reached(accuracy, self.config.stop.test_accuracy))

    def _set_target(self) -> None:
        """Where another target is wanted than before, it is reached from now on, or now already."""
        stop, progress = self.config.stop, self.progress
        wanted = [stop.test_accuracy, stop.test_loss, stop.objective]
        if progress.target != wanted:
            progress.target, progress.seconds_to_target = wanted, None
            self._note_target(
                self._schedule.reason_to_stop(self.progress)
                in ("test_accuracy", "test_loss", "objective")
            )

    def _note_target(self, reached: bool) -> None:
        if reached and self.progress.seconds_to_target is None:
            self.progress.seconds_to_target = self.progress.seconds

    def _checkpoint(self) -> None:
        """Save everything that a resume needs, while the training goes on."""
        self.saver.wait()  # one that has failed is made again
        if self.saver.has(self._mark()):
            return
        self._bring_home()
        start = self.crew.now()
        self.saver.save(self.progress.step, self._mark(), self._tree)
        self.journal.observe(0, ("checkpoint", start, self.crew.now()))

    def _tree(self) -> Tree:
        """Where everything stands."""
        return {
            **self.server.state(),
            "tickets": self.tickets.state(),
            "scheme": self.scheme.export(self.state),
            "progress": asdict(self.progress),
            "offences": self.context.offences.state(),
            "journal": self.journal.state(),
        }

    def _mark(self) -> Mark:
        return self.progress.step, self.progress.refused, self.progress.evaluated_at

    def _clock(self, now: float) -> float:
        """Training seconds at crew time ``now``: evaluation excluded, earlier attempts included."""
        return self._clock_base + now
