"""``psopt report``: what came of runs, or of a sweep."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

_EXIT_USAGE = 2


def report(
    directories: Annotated[
        list[Path], typer.Argument(help="Run directories, or the directory of one sweep.")
    ],
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
    group_by: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,KEY",
            help="Of a sweep: a row for each of their values; all keys but the seed.",
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table", help="Of a sweep: a file, csv, json, markdown or latex; repeatable."
        ),
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Of a sweep: one page with all.")] = False,
) -> None:
    """Compare runs, or the runs of a sweep: a table, and plots of loss, accuracy and more."""
    from psopt.record import SweepDirectory
    from psopt.report import ReportError, parse_window, report_sweep
    from psopt.report import report as write_report

    formats = ("png",) if plot_format == "png" else ("png", plot_format)
    sweeps = [path for path in directories if SweepDirectory(path).is_one()]
    of_sweep = {"--group-by": group_by is not None, "--table": tables, "--html": html}
    of_runs = {"--optimum": optimum is not None, "--window": window is not None}
    try:
        if sweeps:
            _require(len(directories) == 1, f"{sweeps[0]} is a sweep: report it alone")
            _refuse_options(of_runs, "runs, and this is a sweep")
            keys = None if group_by is None else [key for key in group_by.split(",") if key]
            report_sweep(
                *(sweeps[0], out, Console()),
                formats=formats,
                group_by=keys,
                tables=tables or (),
                html=html,
            )
            return
        _refuse_options(of_sweep, "a sweep: name its directory")
        part = None if window is None else parse_window(window)
        write_report(directories, out, Console(), formats=formats, optimum=optimum, window=part)
    except (ReportError, FileNotFoundError) as error:
        raise _refused(str(error)) from error


def _refuse_options(options: Mapping[str, object], whose: str) -> None:
    for name, given in options.items():
        _require(not given, f"{name} is an option of the report of {whose}")


def _require(so: bool, problem: str) -> None:
    if not so:
        raise _refused(problem)


def _refused(problem: str) -> typer.Exit:
    print(problem if ": " in problem else f"psopt: {problem}", file=sys.stderr)
    return typer.Exit(_EXIT_USAGE)
