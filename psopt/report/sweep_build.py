"""The report of a sweep: a table on the console, tables, curves and a page in its directory."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from psopt.record import write_atomic
from psopt.report.curves import legend_columns
from psopt.report.runs import ReportError
from psopt.report.style import figure, save, shorten
from psopt.report.sweep import Group, read_sweep
from psopt.report.sweep_curves import MOST_LINES, draw_sweep
from psopt.report.sweep_page import page
from psopt.report.sweep_table import TABLES, best_text, console_tables, failures

_HEIGHT, _LEGEND_LINE = 4.6, 0.18  # inches


def report_sweep(
    directory: Path,
    out: Path | None,
    console: Console,
    *,
    formats: Sequence[str] = ("png",),
    group_by: Sequence[str] | None = None,
    tables: Sequence[str] = (),
    html: bool = False,
) -> None:
    """Report a sweep: print its table, and write its curves and what else is asked for.

    Args:
        directory: of the sweep.
        out: where the files go; None for the sweep's directory. It is made when it is missing.
        console: where the table goes.
        formats: of the curves: "png" and "svg".
        group_by: swept keys; runs that agree in them are a row. None: all of them but the seed.
        tables: formats of files: csv, json, markdown, latex.
        html: whether to write the page.

    Raises:
        ReportError: it is no sweep, a key or a format is unknown, the files cannot be written, or
            matplotlib is missing (after the tables).
    """
    if unknown := [form for form in tables if form not in TABLES]:
        raise ReportError(f"--table: {unknown[0]!r} is none of {', '.join(TABLES)}")
    if wrong := [form for form in formats if form not in ("png", "svg")]:
        raise ReportError(f"unknown format {wrong[0]}; use png or svg")
    sweep = read_sweep(directory)
    groups = sweep.groups(group_by)
    for table in console_tables(sweep, groups, console.width):
        console.print(table)
    for line in (*failures(sweep), best_text(sweep), f"{sweep.name}: {sweep.tally}"):
        if line:
            console.print(Text(line), soft_wrap=True)
    place = directory if out is None else out
    written: list[Path] = []
    try:
        place.mkdir(parents=True, exist_ok=True)
        for form in dict.fromkeys(tables):
            suffix, make = TABLES[form]
            written.append(place / f"table.{suffix}")
            write_atomic(written[-1], make(sweep, groups))
        svg, remarks = "", list[str]()
        if any(run.evaluations for run in sweep.runs):
            svg, remarks, files = _curves(groups, place / "curves", tuple(formats))
            written += files
        if html:
            written.append(place / "report.html")
            write_atomic(written[-1], page(sweep, groups, svg, remarks))
    except OSError as error:
        raise ReportError(f"{place}: cannot write ({error}); name another with --out") from error
    for line in (*remarks, *(f"wrote {path}" for path in written)):
        console.print(Text(line), soft_wrap=True)


def _curves(
    groups: Sequence[Group], stem: Path, formats: tuple[str, ...]
) -> tuple[str, list[str], list[Path]]:
    """The figure as SVG text, what is to be said of it, and its files."""
    labels = [shorten(group.label) for group in groups[:MOST_LINES]]
    lines = math.ceil((len(labels) + 1) / legend_columns(labels))
    with figure(_HEIGHT + _LEGEND_LINE * lines) as curves:
        remarks = draw_sweep(curves, groups)
        stream = io.StringIO()
        curves.savefig(stream, format="svg", metadata={"Date": None})
        return stream.getvalue(), remarks, save(curves, stem, formats)
