"""The comparison of runs as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from psopt.report.runs import NO_SUMMARY, Run

UNKNOWN = "-"
_COLUMNS = (
    *("run", "scheme", "workers", "crew", "status", "steps", "samples", "seconds", "samples/s"),
    *(
        "passes",
        "objective",
        "gap",
        "test acc. %",
        "s to target",
        "staleness mean/max",
        "waiting %",
    ),
)
_OPTIONAL = {
    10: UNKNOWN,
    11: UNKNOWN,
    14: "0.00 / 0",
}  # columns left out where they say nothing else
_TEXT = 5  # so many columns hold words, or stand between them; the rest are numbers
_STYLES = {
    "completed": "green",
    "diverged": "red",
    "failed": "red",
    "interrupted": "yellow",
    "stopped": "yellow",
    NO_SUMMARY: "yellow",
}


def cells(run: Run, optimum: float | None = None) -> tuple[str, ...]:
    """The texts of one run, one a column; the gap is that to ``optimum``."""
    samples, seconds = run.last("samples"), run.last("seconds")
    rate = samples / seconds if samples is not None and seconds else None
    objective = run.objectives[-1]["objective"] if run.objectives else None
    accuracy, waiting = run.last("test_accuracy"), run.waiting
    return (
        run.label,
        run.scheme or UNKNOWN,
        UNKNOWN if run.workers is None else str(run.workers),
        str(run.summary.get("crew") or UNKNOWN),
        run.status,
        _number(run.last("steps") if run.summary else run.last("step"), ",.0f"),
        _number(samples, ",.0f"),
        _seconds(seconds),
        _number(rate, ",.0f"),
        _number(run.last("epochs") if run.summary else run.last("epoch"), ",.1f"),
        _number(objective, ".10g"),
        _number(None if optimum is None or objective is None else objective - optimum, ".1e"),
        _number(None if accuracy is None else 100 * accuracy, ".2f"),
        _seconds(run.last("seconds_to_target")),
        _staleness(run),
        _number(None if waiting is None else 100 * waiting, ".1f"),
    )


def comparison(runs: Sequence[Run], width: int, optimum: float | None = None) -> list[Table]:
    """The table of several runs; where it is too wide, several, each with the runs' names.

    Args:
        runs: a row each, in order.
        width: how many characters fit.
        optimum: F*, where it is known.
    """
    rows = [cells(run, optimum) for run in runs]
    groups: list[list[int]] = [[]]
    for column in range(1, len(_COLUMNS)):
        nothing = {UNKNOWN, _OPTIONAL.get(column, "")}
        if column in _OPTIONAL and all(row[column] in nothing for row in rows):
            continue
        if groups[-1] and _width(rows, [*groups[-1], column]) > width:
            groups.append([])
        groups[-1].append(column)
    return [_table(rows, columns) for columns in groups]


def remarks(runs: Sequence[Run]) -> list[str]:
    """A line for each run that did not simply end, or that has no test results."""
    lines = []
    if len({run.summary.get("crew") for run in runs if run.summary}) > 1:
        lines.append("seconds are of the virtual cluster for some runs, and of a clock for others")
    for run in runs:
        if run.status not in ("completed", NO_SUMMARY):
            lines.append(f"{run.label}: {run.status}: {run.summary.get('reason') or 'no reason'}")
        if not run.summary:
            lines.append(f"{run.label}: no summary.json: the run is going on, or was killed")
        if not run.evaluations:
            lines.append(
                f"{run.label}: no evaluation, so it has no line in the plots of loss and accuracy"
            )
        lines += _of_losses(run)
        if any(event.get("name") == "truncated" for event in run.events):
            lines.append(f"{run.label}: the timeline is cut at log.timeline_events")
    return lines


def _of_losses(run: Run) -> list[str]:
    """Who was lost on the way, and whose updates were refused."""
    lines, summary = [], run.summary
    if summary.get("degraded"):
        lost = ", ".join(f"worker {worker}" for worker in summary.get("lost_workers") or ())
        what = "went on without" if run.status == "completed" else "has lost"
        lines.append(f"{run.label}: {what} {lost or 'ranks'}")
    by = summary.get("refused_by") or {}
    named = ", ".join(f"{count} of worker {worker}" for worker, count in sorted(by.items()))
    if refused := summary.get("refused_updates"):
        lines.append(
            f"{run.label}: {refused} updates were refused" + (f": {named}" if named else "")
        )
    elif named:
        lines.append(f"{run.label}: results that another worker has disproved: {named}")
    return lines


def _table(rows: Sequence[tuple[str, ...]], columns: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in (0, *columns):
        number = column >= _TEXT or column == 2
        table.add_column(
            _COLUMNS[column], justify="right" if number else "left", no_wrap=column != 0
        )
    for row in rows:
        texts = [Text(row[column]) for column in (0, *columns)]
        for place, column in enumerate((0, *columns)):
            if column == 4:
                texts[place].stylize(_STYLES.get(row[4], ""))
        table.add_row(*texts)
    return table


def _width(rows: Sequence[tuple[str, ...]], columns: Sequence[int]) -> int:
    return Console(width=10_000).measure(_table(rows, columns)).maximum


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _seconds(value: float | None) -> str:
    return _number(value, ",.1f" if value is None or value >= 10 else ".3g")


def _staleness(run: Run) -> str:
    counts = run.staleness
    total = sum(counts.values())
    if not total:
        return UNKNOWN
    mean = sum(value * count for value, count in counts.items()) / total
    return f"{mean:.2f} / {max(counts)}"
