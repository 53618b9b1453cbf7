"""Small jobs for tests: tiny data, a job on it, and training on virtual workers in this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from psopt import job
from psopt.config import dump_job
from psopt.crew.base import Rounds, Tally, Task, Ticket
from psopt.crew.sim import SimCrew
from psopt.crew.virtual import Network
from psopt.data.plan import TicketBook
from psopt.models.zoo import build_model
from psopt.record import (
    CheckpointStore,
    MetricsWriter,
    RunDirectory,
    Timeline,
    Tree,
    read_metrics,
)
from psopt.replica.replica import Replica
from psopt.roles.coordinator import Coordinator
from psopt.roles.display import Figures
from psopt.roles.journal import Journal
from psopt.roles.server import ParameterServer
from psopt.stopping import StopRequest

ROOT = Path(__file__).resolve().parent.parent


def tiny(folder: Path, rows: int = 20, test: int = 9, *, regression: bool = False) -> Path:
    """A data set of six features that a linear model can learn: three classes, or one target."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(rows + test, 6)).astype(np.float32)
    target = x @ generator.normal(size=(6, 3)).astype(np.float32)
    y = target[:, :1] if regression else target.argmax(1)
    path = folder / "tiny.h5"
    with h5py.File(path, "w") as file:
        for split, part in (("train", slice(0, rows)), ("test", slice(rows, None))):
            file.create_dataset(f"{split}/x", data=x[part])
            file.create_dataset(f"{split}/y", data=y[part])
        if not regression:
            file.attrs["classes"] = ["a", "b", "c"]
    return path


def sections(data: Path, /, **changes: Any) -> dict[str, Any]:
    """The sections of a small job; `changes` replaces whole sections."""
    return {
        "name": "test",
        "model": {"name": "softmax"},
        "data": {"path": str(data)},
        "scheme": {"name": "bsp"},
        "optimizer": {"name": "SGD", "lr": 0.1, "momentum": 0.9},
        "train": {"epochs": 2, "batch_size": 4},
        "device": {"kind": "cpu", "threads": 1},
        **changes,
    }


def configured(data: Path, /, **changes: Any) -> Any:
    """A small job."""
    return job.Job.model_validate_json(json.dumps(sections(data, **changes)))


def job_file(folder: Path, data: Path, /, **changes: Any) -> Path:
    """The YAML file of a small job."""
    path = folder / "job.yaml"
    path.write_text(dump_job(configured(data, **changes)), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Given:
    """A task as it was given out, with the parameters of its version."""

    worker: int
    task: Any
    parameters: torch.Tensor
    at: float


class Recorder(SimCrew):
    """A virtual crew that remembers what it was asked to do."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.given: list[Given] = []
        self.chunks: list[Rounds] = []

    def submit(self, worker: int, task: Task) -> None:
        parameters = self._post.published[task.version][0][0]
        self.given.append(Given(worker, task, parameters.clone(), self.now()))
        super().submit(worker, task)

    def together(self, task: Rounds) -> tuple[int, list[tuple[Tally, ...]]]:
        self.chunks.append(task)
        return super().together(task)


class Account(TicketBook):
    """A ticket book that remembers what was applied."""

    def applied(self, ticket: Ticket) -> None:
        super().applied(ticket)
        self.done = [*getattr(self, "done", []), ticket]


class Watcher:
    """A display that remembers."""

    def __init__(self) -> None:
        self.steps: list[Figures] = []
        self.evaluations: list[Figures] = []
        self.warnings: list[str] = []

    def step(self, figures: Figures) -> None:
        self.steps.append(figures)

    def evaluation(self, figures: Figures) -> None:
        self.evaluations.append(figures)

    def note(self, message: str) -> None:
        pass

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def close(self) -> None:
        pass


@dataclass
class Trained:
    """A job after its run."""

    coordinator: Coordinator
    crew: Recorder
    tickets: Account
    watcher: Watcher
    run: RunDirectory
    status: str = ""
    reason: str = ""

    @property
    def sha(self) -> str:
        return self.coordinator.server.sha256()

    @property
    def applied(self) -> list[Ticket]:
        return getattr(self.tickets, "done", [])

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in read_metrics(self.run.metrics_path) if row["kind"] == kind]

    def saved(self) -> Tree:
        latest = CheckpointStore(self.run.checkpoints, 1).load_latest()
        assert latest is not None
        return latest[1]


def steady(worker: int, samples: int) -> float:
    """Seconds of a gradient: all workers are alike."""
    return 0.01 * samples


def train(
    config: Any,
    folder: Path,
    *,
    workers: int = 2,
    compute: Callable[[int, int], float] = steady,
    tree: Tree | None = None,
    bad: Collection[Ticket] = (),
    statistics: Mapping[Ticket, float] | None = None,
    stop: StopRequest | None = None,
    **options: Any,
) -> Trained:
    """Train on virtual workers.

    Args:
        config: the job.
        folder: run directory; a run may go on in it.
        workers: how many.
        compute: seconds that worker w takes for a gradient over n samples.
        tree: a checkpoint to go on from.
        bad: tickets whose gradient is not a number.
        statistics: tickets that set the model's statistics to a number, beside a right gradient.
        stop: whether the run is to end at the next step.
        options: of the virtual crew.
    """
    torch.set_num_threads(1)
    run, watcher = RunDirectory(folder), Watcher()
    folder.mkdir(exist_ok=True)
    parts, train = job.assemble(config), config.train
    tickets = Account(config.seed, len(parts.data.train), train.batch_size, train.epochs)
    with Timeline(run.timeline_path, config.log.timeline_events) as timeline:
        journal = Journal(
            MetricsWriter(run.metrics_path), timeline, watcher, config.log.every_steps
        )
        crew = Recorder(
            _replica(config, bad, statistics or {}),
            workers,
            compute,
            Network(1e-6, 1e9),
            observer=journal.observe,
            **options,
        )
        coordinator = Coordinator(
            config,
            crew,
            ParameterServer(parts.model, parts.optimizer(parts.model)),
            tickets,
            test_samples=len(parts.data.test),
            journal=journal,
            store=CheckpointStore(run.checkpoints, config.checkpoint.keep),
            stop=stop,
        )
        trained = Trained(coordinator, crew, tickets, watcher, run)
        if tree is not None:
            coordinator.restore(tree)
        try:
            trained.status, trained.reason = coordinator.run()
        finally:
            journal.close()
    return trained


def _replica(config: Any, bad: Collection[Ticket], statistics: Mapping[Ticket, float]) -> Replica:
    replica = job.assemble(config).replica()
    right, part = replica.gradient, replica.part

    def poisoned(ticket: Ticket, flat: torch.Tensor, views: tuple[torch.Tensor, ...]) -> Tally:
        tally = right(ticket, flat, views)
        if ticket in bad:
            views[0].fill_(torch.nan)
        for group in replica.model.buffers:
            if ticket in statistics and not group.counts:
                group.flat.fill_(statistics[ticket])
        return tally

    def poisoned_part(ticket: Ticket, views: tuple[torch.Tensor, ...]) -> Tally:
        tally = part(ticket, views)
        if ticket in bad:
            views[0].fill_(torch.nan)
        return tally

    replica.gradient = poisoned  # type: ignore[method-assign]
    replica.part = poisoned_part  # type: ignore[method-assign]
    return replica


def fresh_module(config: Any) -> torch.nn.Module:
    """The job's model, untrained, without anything of psopt around it."""
    data, model = job.assemble(config).data, config.model
    return build_model(
        model.name,
        model.factory,
        model.kwargs,
        input_shape=data.input_shape,
        outputs=data.outputs,
        seed=config.seed,
    )


def batches(config: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """All batches of the job, in the order of the plan."""
    parts = job.assemble(config)
    plans = [parts.tickets().plan(epoch) for epoch in range(config.train.epochs)]
    return [parts.data.train.batch(plan.rows(k)) for plan in plans for k in range(len(plan))]


def psopt(
    *arguments: object, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m psopt` in a process group of its own; nothing of it outlives a deadline."""
    process = subprocess.Popen(
        [sys.executable, "-m", "psopt", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # the launcher passes it on to mpirun
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        raise AssertionError(f"no end within {timeout} s\n{out}\n{err}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
