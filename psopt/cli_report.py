"""``psopt report``: what came of runs, or of a sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

_EXIT_USAGE = 2


def report(
    directories: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the plots go; the run directory, or the first of several, if omitted."
        ),
    ] = None,
    plot_format: Annotated[str, typer.Option("--format", help="png or svg.")] = "png",
    optimum: Annotated[
        float | None,
        typer.Option(metavar="VALUE", help="F* of the gap plot; the lowest seen if omitted."),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="START:END", help="Seconds that timelines show; also START: or :END."),
    ] = None,
) -> None:
    """Compare runs: a table, and plots of loss, accuracy, objective, staleness and waiting."""
    from psopt.report import ReportError, parse_window
    from psopt.report import report as write_report

    try:
        formats = ("png",) if plot_format == "png" else ("png", plot_format)
        part = None if window is None else parse_window(window)
        write_report(directories, out, Console(), formats=formats, optimum=optimum, window=part)
    except (ReportError, FileNotFoundError) as error:
        raise _refused(str(error)) from error


def _refused(problem: str) -> typer.Exit:
    print(problem if ": " in problem else f"psopt: {problem}", file=sys.stderr)
    return typer.Exit(_EXIT_USAGE)
