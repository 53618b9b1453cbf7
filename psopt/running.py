"""Run a job: on the ranks of an MPI world, or on a virtual cluster in this process."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from pydantic import TypeAdapter
from rich.console import Console

from psopt import job
from psopt.config import JobConfig, dump_job
from psopt.crew.base import Crew, Observer, WorkerFailed
from psopt.crew.cluster import compute_times, faults, terms, virtual_crew
from psopt.launch.mpirun import RUN_DIRECTORY, TERMINAL
from psopt.obituary import given_up
from psopt.record import (
    EXITS,
    CheckpointStore,
    MetricsWriter,
    RecordError,
    RunDirectory,
    Timeline,
    Tree,
    batch_job,
    environment,
    read_metrics,
    to_json,
    write_atomic,
)
from psopt.replica.spans import SpanLog
from psopt.request import Prepared, changes
from psopt.roles.coordinator import Coordinator
from psopt.roles.display import Bar, Display, Lines, Screen, Several, forget_stdout
from psopt.roles.journal import Journal
from psopt.roles.server import ParameterServer
from psopt.roles.summary import outcome, summarise
from psopt.roles.worker import serve
from psopt.schemes.base import Scheme
from psopt.stopping import StopRequest

if TYPE_CHECKING:
    from psopt.crew.mpi import World
    from psopt.models.flat import FlatModel


def simulate(start: Prepared, stop: StopRequest) -> int:
    """Run on the virtual cluster that the job's ``cluster`` section describes; the exit status."""
    from psopt.crew.process import keep_memory

    keep_memory()
    config, cores = start.config, len(os.sched_getaffinity(0))
    job.set_threads(config.device.threads, cores // min(config.cluster.workers, cores))
    replica = job.assemble(config, job.choose_device(config.device.kind, 0)).replica()

    def crew(observe: Observer, warn: Callable[[str], None]) -> Crew:
        return virtual_crew(config, replica, observe, warn)

    return _coordinate(start, _Crews("simulated", crew, lambda _: [], {}), stop)


def coordinate(world: World, start: Prepared, stop: StopRequest) -> int:
    """Rank 0 of a real run; the exit status."""
    from psopt.crew.mpi_crew import MpiCrew
    from psopt.crew.wire import Wire
    from psopt.models.flat import sums_agree

    job.set_threads(start.config.device.threads, world.share)
    crew: MpiCrew | None = None
    workers: list[dict[str, Any]] = []
    _survive(world, start.config)

    def make(observe: Observer, warn: Callable[[str], None]) -> Crew:
        nonlocal crew
        wire = Wire(world.ranks, digest=start.config.cluster.digest)
        how = terms(start.config, warn, tolerant=world.tolerant)
        crew = MpiCrew(wire, world.size - 1, observe, how)
        return crew

    def meet(model: FlatModel) -> list[dict[str, Any]]:
        assert crew is not None
        workers.extend(crew.open())
        signature, sums = model.signature(), model.sums()
        for rank, worker in enumerate(workers, start=1):
            if worker["signature"] != signature or not sums_agree(worker.pop("sums"), sums):
                raise RuntimeError(
                    f"rank {rank} on {worker['host']} has built another model than rank 0: its "
                    "factory must not depend on the host, the time, or unseeded random numbers"
                )
        own = {"rank": 0, "host": world.host(), "pid": os.getpid(), "device": "cpu"}
        return [own, *({**w, "rank": rank} for rank, w in enumerate(workers, start=1))]

    try:
        return _coordinate(start, _Crews("mpi", make, meet, world.describe(), world.failure), stop)
    finally:
        world.deserted = crew is not None and bool(crew.deserters)
        if crew is not None and start.config.cluster.on_loss != "continue":
            for worker in crew.deserters:
                who, why = workers[worker], crew.fates[worker]
                line = given_up(worker + 1, who["host"], who["pid"], why)
                print(line, file=sys.stderr, flush=True)


def work(world: World, config: JobConfig[Scheme], dispensable: Callable[[], None]) -> int:
    """Any other rank of a real run, which says when it is ``dispensable``; the exit status."""
    from psopt.crew.mpi_link import MpiLink
    from psopt.crew.wire import Wire

    _survive(world, config)
    dispensable()
    threads = job.set_threads(config.device.threads, world.share)
    device = job.choose_device(config.device.kind, world.local_worker)
    parts, clock = job.assemble(config, device), SpanLog()
    introduction = {
        "host": world.host(),
        "pid": os.getpid(),
        "device": str(device),
        "threads": threads,
        "signature": parts.model.signature(),
        "sums": parts.model.sums(),
    }
    worker, wrong = world.rank - 1, faults(config)
    wire = Wire(world.ranks, digest=config.cluster.digest)
    link = MpiLink(wire, world.rank, world.size, clock, partial(wrong.message, worker))
    emulated = partial(compute_times(config), worker) if config.cluster.emulate else None
    serve(link, parts.replica(clock), introduction, emulated, partial(wrong.poisons, worker))
    return 0


def _survive(world: World, config: JobConfig[Scheme]) -> None:
    """Have this rank outlive others, if the job is to and can."""
    world.digest = config.cluster.digest
    if world.tolerant and config.cluster.on_loss == "continue":
        world.ranks.survive()


@dataclass(frozen=True)
class _Crews:
    """How to make the crew of a run, and what to record of it."""

    kind: str
    make: Any
    meet: Any
    mpi: dict[str, Any]
    failure: tuple[type[Exception], ...] = ()

    def reason(self, error: BaseException) -> str:
        """Why a run failed, for its summary."""
        if isinstance(error, self.failure):
            return "the connection to a rank broke: it has ended, and standard error says how"
        told = isinstance(error, WorkerFailed | RecordError)
        return str(error) if told else f"{type(error).__name__}: {error}"


def _coordinate(start: Prepared, crews: _Crews, stop: StopRequest) -> int:
    """Coordinator and its record, from start to summary."""
    began = time.perf_counter()
    config, run, parts = start.config, start.run, start.parts
    attempts = _note_attempt(start, crews)
    _print(f"{RUN_DIRECTORY}{run.path}")  # from here a summary in it is this attempt's
    with run.open_log() as log:
        display = _display(log, config, real=crews.kind == "mpi")
        with Timeline(run.timeline_path, config.log.timeline_events, display.warn) as timeline:
            metrics = MetricsWriter(run.metrics_path)
            journal = Journal(metrics, timeline, display, config.log.every_steps)
            server = ParameterServer(parts.model, parts.optimizer(parts.model))
            crew = crews.make(journal.observe, journal.warn)
            _name_lanes(timeline, len(crew.workers))
            coordinator = Coordinator(
                config,
                crew,
                server,
                parts.tickets(),
                test_samples=len(parts.data.test),
                journal=journal,
                store=CheckpointStore(
                    run.checkpoints, config.checkpoint.keep, journal.warn, run.identity()
                ),
                stop=stop,
            )
            status, reason = "failed", "an exception; see the log"
            try:
                status, reason = _conduct(coordinator, start, crews)
            except BaseException as error:
                reason = crews.reason(error)
                raise
            finally:
                summary = summarise(
                    coordinator,
                    crew=crews.kind,
                    status=status,
                    reason=reason,
                    wall_seconds=time.perf_counter() - began,
                    attempts=attempts,
                )
                try:
                    _end_record(run, journal, summary)
                finally:
                    start.hold.release()
    _tell(run, summary)
    return EXITS[status]


def _conduct(coordinator: Coordinator, start: Prepared, crews: _Crews) -> tuple[str, str]:
    """Meet the workers, go on where the run stands, and train; status and reason."""
    write_atomic(start.run.ranks_path, to_json(crews.meet(start.parts.model), indent=2))
    if start.before is not None:
        _restore(coordinator, start.tree)
    cluster, ranks = start.config.cluster, len(coordinator.crew.workers)
    if "workers" in cluster.model_fields_set and cluster.workers != ranks:
        coordinator.journal.note(
            f"cluster.workers: {cluster.workers} is of the virtual cluster; this run has {ranks} workers"
        )
    for message in filter(None, (*start.warnings, job.needless(start.config))):
        coordinator.journal.warn(message)
    before = None if start.tree is None else coordinator.progress.step
    status, reason = coordinator.run()
    if start.before and coordinator.progress.step == before and status != "stopped":
        start.run.write_config(dump_job(start.before))  # which all steps were made with
        coordinator.journal.note(f"there was nothing left to do: {reason} had been reached")
    return status, reason


def _end_record(run: RunDirectory, journal: Journal, summary: Mapping[str, Any]) -> None:
    """Bring the record to its end; the summary also where the journal's files cannot be finished."""
    try:
        journal.close()
    except RecordError as error:
        summary = {**summary, "status": "failed", "reason": str(error)}
        raise
    finally:
        run.write_summary(summary)


def _restore(coordinator: Coordinator, tree: Tree | None) -> None:
    """Go on from a checkpoint; from the beginning when earlier attempts left none."""
    if tree is None:
        coordinator.journal.restart()
        coordinator.journal.warn("no checkpoint to resume from: starting from the beginning")
        return
    coordinator.restore(tree)
    coordinator.journal.note(f"resumed at step {coordinator.progress.step}")


def _note_attempt(start: Prepared, crews: _Crews) -> list[dict[str, Any]]:
    """Write config and environment; what is on record of this attempt and those before."""
    run = start.run
    run.write_config(dump_job(start.config))
    run.summary_path.unlink(missing_ok=True)  # of an earlier attempt
    write_atomic(run.environment_path, to_json(environment(crews.mpi), indent=2) + "\n")
    entry = {"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "crew": crews.kind, **crews.mpi}
    entry |= {"run": run.identity() or uuid.uuid4().hex, **batch_job(os.environ)}
    entry["data"] = start.parts.data.train.fingerprint()
    if start.before is not None:
        changed = changes(start.before, start.config)
        entry["changed"] = TypeAdapter(Any).dump_python(changed, mode="json")
    entry |= {} if start.lost is None else {"lost_ranks": start.lost}
    with MetricsWriter(run.attempts_path) as attempts:  # it mends a line that a crash has torn
        attempts.write(entry)
    return read_metrics(run.attempts_path)


def _name_lanes(timeline: Timeline, workers: int) -> None:
    timeline.name(0, "coordinator")
    for worker in range(workers):
        timeline.name(worker + 1, f"worker {worker}")


def _display(log: TextIO, config: JobConfig[Scheme], *, real: bool) -> Display:
    """On a terminal a bar, else lines; always lines in the run's own log."""
    # Open MPI gives every rank a terminal of its own; the launcher says whether there is a real one.
    columns = os.environ.get(TERMINAL)
    interactive = columns is not None if real else sys.stdout.isatty()
    width = int(columns) if columns else None
    screen = Screen(force_terminal=interactive, width=width)
    epochs = config.train.epochs
    on_screen = Bar(screen, epochs) if interactive else Lines(screen, epochs)
    return Several([on_screen, Lines(Console(file=log, width=200), epochs)])


def _tell(run: RunDirectory, summary: Mapping[str, Any]) -> None:
    """The last line: what came of it and where it is."""
    text = outcome(summary)
    with contextlib.suppress(OSError), run.open_log() as log:
        log.write(f"{text}\n")
    _print(f"{text}\n{RUN_DIRECTORY}{run.path}")


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        forget_stdout()
