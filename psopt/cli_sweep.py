"""``psopt sweep`` and ``psopt status``: many runs of one job, and how runs stand."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from psopt.record import Standing, Submission
    from psopt.sweep.array import Batch
    from psopt.sweep.book import Book, Todo
    from psopt.sweep.plan import PlannedRun

_EXIT_FAILED, _EXIT_USAGE = 1, 2


def sweep(
    config: Annotated[Path, typer.Argument(help="A sweep's YAML file.")],
    out: Annotated[
        Path | None, typer.Option(help="The sweep's directory; sweeps/NAME if omitted.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would run and why; write nothing.")
    ] = False,
    local: Annotated[bool, typer.Option("--local", help="Run on this host.")] = False,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Submit arrays of jobs, as `batch` of the jobs says.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help="How many runs at a time; --local: 1, --slurm: no bound if omitted.",
        ),
    ] = None,
    only: Annotated[
        str,
        typer.Option(
            help="missing: those that have not begun or were stopped; failed: those that failed, from "
            "their checkpoints; all: both. What is done or runs is left alone."
        ),
    ] = "missing",
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The first N of these only.")
    ] = None,
) -> None:
    """Run a job with every combination of some values; a second call runs what is missing.

    Exit status 0 when no run of the sweep has failed, 1 when some have, 128 + n when signal n ended it;
    with --slurm 0 when all was submitted.
    """
    from psopt.config import ConfigError
    from psopt.launch.asking import SubmitError
    from psopt.launch.mpirun import is_rank
    from psopt.launch.script import ScriptError
    from psopt.record import SweepDirectory
    from psopt.sweep.array import batches
    from psopt.sweep.book import Book, Only, SweepError
    from psopt.sweep.plan import plan

    if is_rank(os.environ):
        raise _refused(
            "a sweep starts the ranks of its runs itself; start it without mpirun or srun"
        )
    if only not in [*Only]:
        raise _refused(f"--only: {only!r} is none of {', '.join(Only)}")
    if (local and slurm) or not (dry_run or local or slurm):
        raise _refused(
            "say where to run: --local on this host, --slurm in the batch system, or --dry-run to see what "
            "would run"
        )
    try:
        planned = plan(config)
        book = Book(planned, SweepDirectory(out or Path("sweeps") / planned.config.name))
        book.check()
        standings = book.standings()
        todo = book.chosen(standings, Only(only), limit)
        arrays = batches(todo, planned.config, book.directory, jobs) if slurm else []
        if not dry_run:
            book.prepare(todo)
        _announce(book, standings, todo, dry_run=dry_run, slurm=slurm)
    except (ConfigError, SweepError, ScriptError, SubmitError, OSError) as error:
        raise _refused(str(error)) from error
    again = ["psopt", "sweep", str(config), *(["--out", str(out)] if out else [])]
    if dry_run:
        for array in arrays:
            print(f"\n{array.text}", end="")
    elif slurm:
        raise typer.Exit(_submit(arrays, [*again, "--slurm"]))
    else:
        again += ["--local", *(["--jobs", str(jobs)] if jobs else [])]
        raise typer.Exit(_run(book, todo, jobs or 1, again))


def status(
    directory: Annotated[Path, typer.Argument(help="The directory of a run or of a sweep.")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """How a run stands, or the runs of a sweep.

    Exit status 0 when all is done, 1 when a run has failed, 3 when some are running, have not begun or
    are unknown.
    """
    from psopt.record import NotARun, NotASweep
    from psopt.sweep.status import exit_status, read_status, status_json, status_text

    try:
        found = read_status(directory)
    except (NotARun, NotASweep) as error:
        raise _refused(str(error)) from error
    print(json.dumps(status_json(found), indent=2) if as_json else status_text(found))
    raise typer.Exit(exit_status([standing.state for _, _, standing in found.runs]))


def _announce(
    book: Book,
    standings: list[tuple[PlannedRun, Standing]],
    todo: list[Todo],
    *,
    dry_run: bool,
    slurm: bool,
) -> None:
    """What there is, and with --dry-run every run that would run, with the reason."""
    from psopt.config import assignment_text
    from psopt.sweep.book import counted

    plan = book.plan
    states = [standing.state for _, standing in standings]
    print(f"{plan.config.name}: {len(plan.runs)} runs in {book.directory.path}: {counted(states)}")
    if plan.repeated:
        print(f"left out, since they are the same as others: {plan.repeated}")
    for pattern in plan.idle:
        print(f"exclude {pattern}: there is no such run")
    if dry_run:
        for each in todo:
            how = "goes on" if each.goes_on else "starts"
            print(
                f"  {each.run.id}  {assignment_text(each.run.assignment)}  {how}: {each.why.reason}"
            )
        print(f"would run {len(todo)} of {len(plan.runs)}", flush=True)
    else:
        print(f"{'submitting' if slurm else 'running'} {len(todo)}", flush=True)


def _submit(arrays: list[Batch], again: list[str]) -> int:
    """Submit them; the exit status."""
    from psopt.launch.asking import SubmitError
    from psopt.sweep.array import submit

    taken = 0

    def tell(array: Batch, submission: Submission) -> None:
        nonlocal taken
        taken += 1
        where = f" on {submission.cluster}" if submission.cluster else ""
        print(f"submitted {submission.job}{where}: {len(array.todo)} runs", flush=True)

    try:
        submit(arrays, tell)
    except (SubmitError, OSError) as error:
        rest = sum(len(array.todo) for array in arrays[taken:])
        said = f"{taken} of {len(arrays)} arrays are submitted; {rest} runs are not: {shlex.join(again)}"
        print(f"psopt: {error}\npsopt: {said}", file=sys.stderr, flush=True)
        return _EXIT_FAILED
    return 0


def _run(book: Book, todo: list[Todo], jobs: int, again: list[str]) -> int:
    """Run them here; the exit status."""
    from psopt.record import State
    from psopt.sweep.book import counted
    from psopt.sweep.local import Local
    from psopt.sweep.status import line_of_end

    ended, retried = 0, any(each.why.state is State.FAILED for each in todo)

    def tell(each: Todo, standing: Standing, seconds: float) -> None:
        nonlocal ended
        ended += 1
        line = line_of_end(each.run.id, each.run.assignment, standing, each.path)
        print(f"[{ended}/{len(todo)}] {line} ({seconds:.1f} s)", flush=True)

    local = Local(book.plan.config.ranks, jobs, tell)
    try:
        local.run(todo)
    except OSError as error:
        raise _refused(f"{error}; the runs that were going on are ended") from error
    states = [standing.state for _, standing in book.standings()]
    print(f"{book.plan.config.name}: {counted(states)}", flush=True)
    command = shlex.join(again)
    if local.signals:
        command += " --only all" if retried else ""
        name = signal.Signals(local.signals[0]).name
        print(f"psopt: ended by {name}; go on with: {command}", file=sys.stderr, flush=True)
        return 128 + local.signals[0]
    if State.FAILED in states:
        print(f"run the failed ones again with: {command} --only failed", flush=True)
        return _EXIT_FAILED
    return 0


def _refused(problem: str) -> typer.Exit:
    print(problem if ": " in problem else f"psopt: {problem}", file=sys.stderr)
    return typer.Exit(_EXIT_USAGE)
