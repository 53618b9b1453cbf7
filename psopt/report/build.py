"""The report: a table on the console, figures in a directory."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from psopt.report.curves import draw_curves, legend_columns
from psopt.report.gantt import check_window, draw_timeline, timeline_height
from psopt.report.gap import draw_gap, gap_remarks, references
from psopt.report.runs import ReportError, Run, read_each
from psopt.report.staleness import asynchronous, draw_staleness, staleness_height
from psopt.report.style import figure, save, shorten
from psopt.report.table import comparison, remarks

_CURVES_HEIGHT = 4.6
_GAP_HEIGHT = 2.6
_LEGEND_LINE = 0.18
_FORMATS = ("png", "svg")


def report(
    directories: Sequence[Path],
    out: Path | None,
    console: Console,
    *,
    formats: Sequence[str] = ("png",),
    optimum: float | None = None,
    window: tuple[float, float] | None = None,
) -> Path:
    """Compare runs: print a table and write report, gap, staleness and timeline figures.

    Args:
        directories: run directories; a run that failed, or has no summary, is listed too.
        out: where the figures go; None for the run directory of a single run, and `report/` for
            several. It is made when it is missing.
        console: where the table goes.
        formats: of "png" and "svg"; each figure is written once in each.
        optimum: F*, the least objective that there is; None for the lowest that was seen.
        window: start and end, in seconds, of what timelines show, infinite for those of the trace;
            None for a typical stretch.

    Returns:
        The directory of the figures. They are `report`, `gap` where an objective was recorded,
        `staleness` where an update was stale, and `timeline` (of several runs: `timeline-<run>`)
        where one was recorded.

    Raises:
        ReportError: `out` cannot be written, a format is unknown, `optimum` or `window` does not
            fit these runs, or matplotlib is missing (after the table was printed); or, after all
            is written of the others, a directory is not of a run or is damaged.
    """
    unknown = sorted(set(formats) - set(_FORMATS))
    if unknown or not formats:
        raise ReportError(f"unknown format {', '.join(unknown) or '(none)'}; use png or svg")
    runs, problems = read_each(directories)
    if not runs:
        raise ReportError("\n".join(problems))
    references(runs, optimum)
    if window is not None:
        check_window(runs, window)
    for table in comparison(runs, console.width, optimum):
        console.print(table)
    for line in (*remarks(runs), *gap_remarks(runs, optimum)):
        console.print(Text(line))
    directory = Path(out) if out is not None else _default(runs, alone=not problems)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = _figures(runs, directory, tuple(dict.fromkeys(formats)), optimum, window)
    except OSError as error:
        raise ReportError(
            f"{directory}: cannot write ({error}); name another with --out"
        ) from error
    for path in written:
        console.print(Text(f"wrote {path}"), soft_wrap=True)
    if problems:
        raise ReportError("\n".join(problems))
    return directory


def _default(runs: Sequence[Run], *, alone: bool) -> Path:
    return runs[0].path if alone and len(runs) == 1 else Path("report")


def _figures(
    runs: Sequence[Run],
    directory: Path,
    formats: tuple[str, ...],
    optimum: float | None,
    window: tuple[float, float] | None,
) -> list[Path]:
    lines = math.ceil((len(runs) + 1) / legend_columns([shorten(run.label) for run in runs]))
    with figure(_CURVES_HEIGHT + _LEGEND_LINE * lines) as curves:
        draw_curves(curves, runs)
        written = save(curves, directory / "report", formats)
    if any(run.objectives for run in runs):
        with figure(_GAP_HEIGHT + _LEGEND_LINE * lines) as gap:
            draw_gap(gap, runs, optimum)
            written += save(gap, directory / "gap", formats)
    stale = asynchronous(runs)
    if stale:
        with figure(staleness_height(stale)) as histograms:
            draw_staleness(histograms, stale)
            written += save(histograms, directory / "staleness", formats)
    for run, name in _timeline_names(runs):
        with figure(timeline_height(run)) as gantt:
            draw_timeline(gantt, run, window)
            written += save(gantt, directory / name, formats)
    return written


def _timeline_names(runs: Sequence[Run]) -> list[tuple[Run, str]]:
    """The runs that have a timeline, each with the stem of its file."""
    names: dict[str, Run] = {}
    for run in runs:
        if not any(event.get("ph") == "X" for event in run.events):
            continue
        name = "timeline"
        if len(runs) > 1:
            name += "-" + re.sub(r"[^A-Za-z0-9._+-]+", "-", run.label).strip("-")
        while name in names:
            name += "-2"
        names[name] = run
    return [(run, name) for name, run in names.items()]
