"""``psopt submit``: a job for the batch system of a cluster."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from psopt.launch.submit import Order

_EXIT_USAGE = 2


def submit(
    config: Annotated[Path, typer.Argument(help="A job's YAML file.")],
    flags: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- FLAGS]", help="Options for sbatch, as they are."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; runs/NAME-TIME if omitted.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key; may be repeated."),
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="slurm, tianhe2 or tianhexy; by PATH if omitted.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the script and the command; write nothing.")
    ] = False,
    test_only: Annotated[
        bool, typer.Option("--test-only", help="Ask whether and when it would run; submit nothing.")
    ] = False,
) -> None:
    """Submit a job to Slurm; print its number.

    Its `batch` section says what it asks for. Script, log and the job as it is now are kept in the run directory.
    """
    from psopt.launch.asking import SubmitError
    from psopt.launch.script import ScriptError
    from psopt.record import RunExists

    try:
        order = _order(config, overrides or [], site, flags or [])
        if dry_run or test_only:
            _try(order, out, dry_run=dry_run)
        else:
            _submit(order, out)
    except SubmitError as error:
        raise _ended(str(error), error.status) from error
    except (ScriptError, RunExists) as error:
        raise _ended(str(error), _EXIT_USAGE) from error
    except OSError as error:
        raise _ended(f"{error}; see to the run directory's permissions and space") from error


def _order(path: Path, overrides: list[str], site: str | None, flags: list[str]) -> Order:
    """The job that was asked for, with everything about it checked."""
    from psopt import job
    from psopt.config import ConfigError
    from psopt.launch.placement import check_batch
    from psopt.launch.submit import Order, check_flags, site_of

    check_flags(flags)
    overrides = [*overrides, *([f"batch.site={site}"] if site is not None else [])]
    try:
        config = job.load(path, overrides)
        if config.batch.site is None:
            overrides.append(f"batch.site={site_of(config).name}")
        config = job.load(path, overrides, (check_batch,))
    except ConfigError as error:
        raise _ended(str(error)) from error
    _note(job.needless(config))
    if config.batch.requeue and config.checkpoint.every_steps is None:
        _note("checkpoint.every_steps is not set, so a job that is requeued begins anew")
    return Order.of(config, flags)


def _try(order: Order, out: Path | None, *, dry_run: bool) -> None:
    """Show, or have the batch system judge, what would be submitted."""
    from psopt.launch.asking import ask
    from psopt.record import BatchFiles, RunDirectory

    run = (out or RunDirectory.fresh(order.config.name)).absolute()
    text = order.script(run)
    if dry_run:
        print(text, end="")
        _note(shlex.join(order.command(str(BatchFiles(run).script))))
    else:
        answer = ask(order.command("--test-only"), text)
        print(answer.err + answer.out, end="", file=sys.stderr, flush=True)


def _submit(order: Order, out: Path | None) -> None:
    from psopt.launch.submit import submit

    submission, run, answer = submit(order, out)
    print(answer.err, end="", file=sys.stderr, flush=True)
    where = order.site.name + (f", cluster {submission.cluster}" if submission.cluster else "")
    _note(f"job {submission.job} ({where}), run directory: {run}")
    print(submission.job)


def _note(text: str) -> None:
    if text:
        print(f"psopt: {text}", file=sys.stderr, flush=True)


def _ended(problem: str, status: int = _EXIT_USAGE) -> typer.Exit:
    print(problem if ": " in problem else f"psopt: {problem}", file=sys.stderr, flush=True)
    return typer.Exit(status)
