"""The table of a sweep, for the terminal and for files: CSV, JSON, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from psopt.config import assignment_text, one_line, short_text
from psopt.record import State, to_json
from psopt.report.sweep import Group, Measure, Spread, Sweep

UNKNOWN = "-"
_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
}


def header(sweep: Sweep, groups: Sequence[Group]) -> list[str]:
    """The titles of the columns."""
    return [*_keys(groups), "done", "failed", "missing", *(m.title for m in sweep.measures)]


def rows(sweep: Sweep, groups: Sequence[Group]) -> list[list[str]]:
    """A row of texts for each group: values, how many runs are how, mean ± standard deviation.

    What is running, or not known, counts as missing here: it has no result yet.
    """
    return [
        [
            *(one_line(short_text(value)) for value in group.values.values()),
            *map(str, _counts(group)),
            *(spread_text(group.spread(measure), measure) for measure in sweep.measures),
        ]
        for group in groups
    ]


def spread_text(spread: Spread | None, measure: Measure) -> str:
    """`91.20 ± 0.35`, or the mean alone of one run."""
    if spread is None:
        return UNKNOWN
    mean = format(spread.mean, measure.form)
    if spread.deviation is None:
        return mean
    return f"{mean} ± {format(spread.deviation, '.2g' if 'g' in measure.form else measure.form)}"


def best_text(sweep: Sweep) -> str:
    """Which run was the best, and how good; empty where none has a result."""
    run = sweep.best
    if run is None:
        return ""
    said = [
        f"{measure.title} {format(value, measure.form)}"
        for measure in sweep.measures
        if (value := run.value(measure)) is not None
    ]
    return f"best run: {assignment_text(run.entry.assignment)} ({run.entry.id}): {', '.join(said)}"


def failures(sweep: Sweep) -> list[str]:
    """A line for each run that failed, with its reason."""
    return [
        f"failed: {assignment_text(run.entry.assignment)} ({run.entry.id}): {one_line(run.reason)}"
        for run in sweep.runs
        if run.state is State.FAILED
    ]


def console_tables(sweep: Sweep, groups: Sequence[Group], width: int) -> list[Table]:
    """For the terminal; where it is too narrow, several tables, each with the groups' values.

    Args:
        sweep: what it is about.
        groups: a row each.
        width: how many characters fit.
    """
    cells = [header(sweep, groups), *rows(sweep, groups)]
    words = len(_keys(groups))
    parts: list[list[int]] = [[]]
    for column in range(words, len(cells[0])):
        if parts[-1] and _width(_console(cells, words, [*parts[-1], column])) > width:
            parts.append([])
        parts[-1].append(column)
    return [_console(cells, words, part) for part in parts]


def _console(cells: Sequence[Sequence[str]], words: int, columns: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown = [*range(words), *columns]
    for column in shown:
        word = column < words
        table.add_column(
            Text(cells[0][column]), justify="left" if word else "right", no_wrap=not word
        )
    for row in cells[1:]:
        table.add_row(*(Text(row[column]) for column in shown))
    return table


def _width(table: Table) -> int:
    return Console(width=10_000).measure(table).maximum


def csv_table(sweep: Sweep, groups: Sequence[Group]) -> str:
    """A row a group with plain numbers: count, mean and deviation of every measure."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    figures = [
        f"{measure.name}_{kind}"
        for measure in sweep.measures
        for kind in ("count", "mean", "deviation")
    ]
    writer.writerow([*_keys(groups), "done", "failed", "missing", *figures])
    for group in groups:
        spreads = [_plain(group.spread(measure), measure) for measure in sweep.measures]
        numbers = [
            "" if number is None else repr(number)
            for spread in spreads
            for number in (spread["count"], spread["mean"], spread["deviation"])
        ]
        texts = [_harmless(short_text(value)) for value in group.values.values()]
        writer.writerow([*texts, *_counts(group), *numbers])
    return stream.getvalue()


def json_table(sweep: Sweep, groups: Sequence[Group]) -> str:
    """Everything: counts, groups with plain numbers, the best run."""
    best = sweep.best
    content = {
        "name": sweep.name,
        "counts": sweep.counts,
        "groups": [
            {
                "values": group.values,
                **dict(zip(("done", "failed", "missing"), _counts(group), strict=True)),
                **{m.name: _plain(group.spread(m), m) for m in sweep.measures},
                "runs": [run.entry.id for run in group.runs],
            }
            for group in groups
        ],
        "best": None
        if best is None
        else {"id": best.entry.id, "assignment": best.entry.assignment},
    }
    return to_json(content, indent=2) + "\n"


def markdown_table(sweep: Sweep, groups: Sequence[Group]) -> str:
    """A table of GitHub's Markdown, with the tally and the best run below it."""
    words = len(_keys(groups))
    titles = header(sweep, groups)
    marks = ["---" if place < words else "---:" for place in range(len(titles))]
    lines = [titles, marks, *rows(sweep, groups)]
    table = ["| " + " | ".join(map(_markdown, cells)) + " |" for cells in lines]
    return "\n".join([*table, "", sweep.tally, *_paragraph(_markdown(best_text(sweep)))]) + "\n"


def latex_table(sweep: Sweep, groups: Sequence[Group]) -> str:
    """A tabular of plain LaTeX, with the tally as a comment and below it."""
    words = len(_keys(groups))
    titles = header(sweep, groups)
    columns = "l" * words + "r" * (len(titles) - words)
    lines = [
        f"% sweep {one_line(sweep.name)}: {sweep.tally}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        _latex_row(titles),
        r"\hline",
        *(_latex_row(row) for row in rows(sweep, groups)),
        r"\hline",
        r"\end{tabular}",
        "",
        _latex(sweep.tally) + ".",
    ]
    return "\n".join(lines) + "\n"


TABLES: dict[str, tuple[str, Callable[[Sweep, Sequence[Group]], str]]] = {
    "csv": ("csv", csv_table),
    "json": ("json", json_table),
    "markdown": ("md", markdown_table),
    "latex": ("tex", latex_table),
}
"""By format: the suffix of its file, and what makes it."""


def _keys(groups: Sequence[Group]) -> list[str]:
    return [one_line(key) for key in groups[0].values] if groups else []


def _counts(group: Group) -> tuple[int, int, int]:
    done, failed = group.count(State.DONE), group.count(State.FAILED)
    return done, failed, len(group.runs) - done - failed


def _plain(spread: Spread | None, measure: Measure) -> dict[str, Any]:
    """In the unit of the summary: accuracy is a fraction."""
    if spread is None:
        return {"count": 0, "mean": None, "deviation": None}
    deviation = None if spread.deviation is None else spread.deviation / measure.factor
    return {"count": spread.count, "mean": spread.mean / measure.factor, "deviation": deviation}


def _harmless(text: str) -> str:
    """What a spreadsheet would take for a formula is text there with an apostrophe."""
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text[:1] in "=+-@\t\r" and text else text
    return text


def _paragraph(text: str) -> list[str]:
    return ["", text] if text else []


def _markdown(text: str) -> str:
    """Text as itself: marks of Markdown and HTML are none."""
    for character in "\\`*_[]|":
        text = text.replace(character, f"\\{character}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text).replace("±", r"$\pm$")


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"
