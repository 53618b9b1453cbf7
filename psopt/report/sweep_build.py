"""The report of a sweep: a table on the console, tables, curves and a page in its directory."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from psopt.record import State, write_atomic
from psopt.report.curves import legend_columns
from psopt.report.gantt import draw_timeline, timeline_height
from psopt.report.runs import ReportError, read_each
from psopt.report.style import figure, save, shorten
from psopt.report.sweep import Group, Sweep, read_sweep
from psopt.report.sweep_curves import MOST_LINES, draw_sweep
from psopt.report.sweep_page import Picture, page
from psopt.report.sweep_speed import draw_scalings, measure_of, scalings
from psopt.report.sweep_table import TABLES, best_text, console_tables, failures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT, _SPEED_HEIGHT, _LEGEND_LINE = 4.6, 2.7, 0.18  # inches
_TIMELINES = 6  # on a page


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
        pictures, files = _pictures(sweep, groups, place, tuple(formats), timelines=html)
        written += files
        if html:
            written.append(place / "report.html")
            write_atomic(written[-1], page(sweep, groups, pictures))
    except OSError as error:
        raise ReportError(f"{place}: cannot write ({error}); name another with --out") from error
    remarks = [line for picture in pictures for line in picture.remarks]
    for line in (*remarks, *(f"wrote {path}" for path in written)):
        console.print(Text(line), soft_wrap=True)


def _pictures(
    sweep: Sweep, groups: Sequence[Group], place: Path, formats: tuple[str, ...], *, timelines: bool
) -> tuple[list[Picture], list[Path]]:
    """The figures, and the files of those that are files of their own."""
    pictures, files = list[Picture](), list[Path]()
    if any(run.evaluations for run in sweep.runs):
        with _figure(_HEIGHT, [group.label for group in groups[:MOST_LINES]]) as curves:
            remarks = draw_sweep(curves, groups)
            pictures.append(Picture("Curves", _svg(curves), remarks=remarks))
            files += save(curves, place / "curves", formats)
    if families := scalings(sweep):
        shown, left = families[:MOST_LINES], len(families) - MOST_LINES
        with _figure(_SPEED_HEIGHT, [family.label for family in shown]) as speed:
            draw_scalings(speed, measure_of(sweep), shown)
            said = [f"the speed-up leaves out {left} more lines"] if left > 0 else []
            pictures.append(Picture("Speed-up", _svg(speed), remarks=said))
            files += save(speed, place / "speedup", formats)
    if timelines:
        pictures += _timelines(groups)
    return pictures, files


def _timelines(groups: Sequence[Group]) -> list[Picture]:
    """One of each scheme, of a run that is done and has one: in the last group, which has most workers."""
    found: dict[str, Picture] = {}
    for group in reversed(groups):
        done = [run for run in group.runs if run.state is State.DONE]
        for swept in done[:1]:
            scheme = str(swept.summary.get("scheme"))
            if scheme in found or len(found) == _TIMELINES:
                continue
            for run in read_each([swept.path])[0]:
                if any(event.get("ph") == "X" for event in run.events):
                    with figure(timeline_height(run)) as gantt:
                        draw_timeline(gantt, run)
                        found[scheme] = Picture("Timelines", _svg(gantt), group.label)
    return [*reversed(found.values())]


def _figure(height: float, labels: Sequence[str]) -> AbstractContextManager[Figure]:
    """A figure with room for a legend."""
    short = [shorten(label) for label in labels]
    return figure(height + _LEGEND_LINE * math.ceil((len(short) + 1) / legend_columns(short)))


def _svg(drawn: Figure) -> str:
    stream = io.StringIO()
    drawn.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
