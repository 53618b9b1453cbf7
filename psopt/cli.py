"""The ``psopt`` command. Wires objects together; the only place that asks which rank this is.

Exit status: 0 complete, 1 failed, 2 a usage, config or data error found before training, 3 diverged,
75 stopped by a signal after a checkpoint, 128 + n ended by signal n.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from psopt import __version__
from psopt.cli_chaos import chaos
from psopt.cli_data import data_app
from psopt.cli_life import cancel, logs, resume_batch_job
from psopt.cli_report import report
from psopt.cli_submit import submit
from psopt.cli_sweep import status, sweep
from psopt.stopping import StopRequest

EXIT_FAILED, EXIT_USAGE = 1, 2

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train PyTorch models with parallel optimisation methods, as MPI batch jobs.",
)
app.add_typer(data_app, name="data")
for command in (report, submit, cancel, logs, sweep, status, chaos):
    app.command()(command)

ConfigFile = Annotated[Path, typer.Argument(help="A job's YAML file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key with a YAML value, as in train.epochs=5; may be repeated.",
    ),
]


def main() -> None:
    """Entry point of the console command and of ``python -m psopt``."""
    app()


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"psopt {__version__}")
        raise typer.Exit


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(help="A job's YAML file.")] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            "-n",
            min=1,
            help="MPI ranks to start: the coordinator and the workers. Not with --simulate, nor under mpirun or srun.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; runs/NAME-TIME if omitted.")
    ] = None,
    overrides: Overrides = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="On the virtual cluster of the `cluster` section.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the run in this directory.", metavar="DIR")
    ] = None,
    lost: Annotated[str | None, typer.Option(hidden=True)] = None,  # said by a launcher
) -> None:
    """Run a job: start its ranks here, or be one of them under mpirun or srun."""
    from psopt.launch.mpirun import is_rank

    a_rank, stop = is_rank(os.environ), StopRequest()
    if (config is None) == (resume is None):
        _refuse("give a config file, or --resume DIR")
    if simulate and ranks is not None:
        _refuse("--simulate starts no ranks: leave out -n, and say --set cluster.workers=N")
    if resume is not None and out is not None:
        _refuse("--resume continues in its own directory; leave out --out")
    if simulate and a_rank:
        _refuse("--simulate runs in one process: start it without mpirun or srun")
    if a_rank:
        from psopt.crew.supervisor import supervise

        notes = supervise(prepare=stop.heed)  # forks, so before the imports below
    from psopt.request import Refused, Request, ranks_in

    request = Request(config, resume, out, tuple(overrides or ()), ranks_in(lost))
    if a_rank:
        raise typer.Exit(_be_a_rank(request, ranks, notes, stop))
    try:
        simulate |= ranks is None and request.was_simulated()
    except Refused as error:
        _refuse(str(error))
    raise typer.Exit(_simulate(request, stop) if simulate else _launch(request, ranks))


@app.command()
def resume(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    ranks: Annotated[
        int | None, typer.Option("-n", min=1, help="MPI ranks; as many as it had if omitted.")
    ] = None,
) -> None:
    """Go on with a run: submit its job anew and print the number, or continue it here as it was started."""
    if not resume_batch_job(directory, ranks):
        run(ranks=ranks, resume=directory)


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Job files.")], overrides: Overrides = None
) -> None:
    """Check job files; print everything that is wrong as file:line:col: message."""
    from psopt import job
    from psopt.config import ConfigError

    failed = False
    for path in files:
        try:
            note = job.needless(job.load(path, overrides or ()))
            print(f"{path}: ok" + (f"; {note}" if note else ""))
        except ConfigError as error:
            failed = True
            print(error, file=sys.stderr)
    raise typer.Exit(EXIT_USAGE if failed else 0)


@app.command()
def schema(
    sweep: Annotated[bool, typer.Option("--sweep", help="That of sweep files.")] = False,
) -> None:
    """Print the JSON schema of job files, for editors."""
    from psopt import job
    from psopt.config import job_schema, sweep_schema

    print(sweep_schema() if sweep else job_schema(job.Job), end="")


@app.command()
def export(
    directory: Annotated[Path, typer.Argument(help="A run directory, or a checkpoint file.")],
    out: Annotated[Path, typer.Argument(help="A .pt (state_dict) or .safetensors file.")],
) -> None:
    """Write the newest checkpoint's parameters and buffers for use without psopt."""
    from psopt.record import CheckpointError, ExportError, NotARun
    from psopt.record import export as write_export

    try:
        print(write_export(directory, out, lambda text: print(f"warning: {text}", file=sys.stderr)))
    except (CheckpointError, ExportError, NotARun) as error:
        _refuse(str(error))


@app.command()
def doctor() -> None:
    """Test what jobs need here: MPI, GPUs, HDF5 locking, cores; with remedies."""
    from psopt.launch.doctor import doctor as examine

    raise typer.Exit(examine(Console()))


def _simulate(request: Any, stop: StopRequest) -> int:
    from psopt.record import RecordError
    from psopt.request import Refused
    from psopt.running import simulate

    try:
        prepared = request.prepare(None)
    except Refused as error:
        _refuse(str(error))
    stop.heed()
    try:
        return simulate(prepared, stop)
    except SystemExit as error:  # by a model's or a loss's code
        print(f"psopt: sys.exit({error.code!r}) before the job was complete", file=sys.stderr)
    except RecordError as error:
        print(f"psopt: {error}", file=sys.stderr)
    return EXIT_FAILED


def _launch(request: Any, ranks: int | None) -> int:
    """Start mpirun, after the checks that need no rank."""
    from psopt.launch.attempts import run_ranks
    from psopt.launch.flavour import MpirunError
    from psopt.request import Refused, again

    try:
        request.check_crew(simulated=False)
        cluster = request.load().cluster
        return run_ranks(request.arguments(), request.ranks(ranks), cluster, again)
    except (Refused, MpirunError) as error:
        _refuse(str(error))


def _be_a_rank(request: Any, ranks: int | None, notes: Any, stop: StopRequest) -> int:
    """One rank of a job: the coordinator where rank is 0, else a worker."""
    from psopt.crew.guard import guarded
    from psopt.crew.process import keep_memory, short_addresses
    from psopt.processes import fine_timers

    faulthandler.enable()
    fine_timers()
    keep_memory()
    short_addresses(os.environ)
    notes.meeting()
    from psopt.crew.mpi import World, WorldError
    from psopt.launch.mpirun import alone

    try:
        world = World()
    except WorldError as error:
        notes.failed(EXIT_USAGE)
        _refuse(str(error))
    notes.rank(world.rank)

    def body() -> int:
        from psopt import request as asked
        from psopt import running

        if world.size == 1:
            return _say(alone(os.environ))
        if ranks not in (None, world.size):
            return _say(
                f"-n says {ranks} ranks, but mpirun or srun started {world.size}: leave out -n"
            )
        prepared = None
        packed: Any = None
        if world.rank == 0:
            try:
                prepared = request.prepare(world.size - 1)
                packed = prepared.packed()
            except asked.Refused as error:
                _say(str(error))
        packed = world.agree(packed)
        if packed is None:
            return EXIT_USAGE
        if prepared is not None:
            return _leave(world, running.coordinate(world, prepared, stop))
        stop.lasts()
        return _leave(world, running.work(world, asked.unpacked_config(packed), notes.dispensable))

    if world.rank == 0:
        return guarded(world, body, notes)
    return guarded(world, body, notes, world.confess)


def _leave(world: Any, status: int) -> int:
    """Wait until all is on disk: from there on a rank that hangs, in Finalize, or dies does no harm."""
    if not world.tolerant and not world.deserted:  # else some are not there to be waited for
        world.agree(None)
    return status


def _say(problem: str) -> int:
    """Print what is wrong, once where several ranks find it; the exit status."""
    from psopt.launch.mpirun import is_first

    if is_first(os.environ):
        print(problem if ": " in problem else f"psopt: {problem}", file=sys.stderr, flush=True)
    return EXIT_USAGE


def _refuse(problem: str) -> NoReturn:
    """End with what is wrong. Of several ranks the first says it, and Open MPI ends all with one."""
    from psopt.launch.mpirun import is_first

    status = _say(problem)
    if not is_first(os.environ):
        time.sleep(3.0)  # for the first to be heard
    raise typer.Exit(status)
