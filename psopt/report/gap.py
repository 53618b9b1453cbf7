"""How far the objective is from its optimum, against rounds, gradient passes and time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psopt.report.curves import legend_columns
from psopt.report.runs import ReportError, Run
from psopt.report.style import corner, line_style, logarithmic, note, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ABSCISSAS = {"step": "rounds", "epoch": "gradient passes", "seconds": "training time (s)"}
_SECTIONS = ("model", "data", "loss")
_HARMLESS = {"cache_bytes", "test_limit"}  # keys of them that leave the objective as it is
_BLOW_UP = 10.0  # a gap beyond so many times the largest first gap leaves the axes
_LEAST = 1e-200  # a gap up to it has no place on a logarithmic axis and its margins
_MARGIN = 0.05  # of the axis


def references(runs: Sequence[Run], optimum: float | None) -> dict[str, float]:
    """F* of each run that has objectives, by label.

    It is the optimum, or else the lowest objective that was seen in the runs of the same problem:
    those whose model, data and loss are alike in the resolved config.

    Args:
        runs: all runs of the report.
        optimum: F* where it is known.

    Raises:
        ReportError: the optimum is not finite, no run has an objective that it could belong to, or
            the runs are of several problems and cannot all have this optimum.
    """
    lowest: dict[str, float] = {}
    members: dict[str, list[str]] = {}
    for run in runs:
        if run.objectives:
            problem = _problem(run.config)
            lowest[problem] = min(lowest.get(problem, math.inf), _lowest(run))
            members.setdefault(problem, []).append(run.label)
    if optimum is not None:
        _check(optimum, list(members.values()))
        lowest = dict.fromkeys(lowest, optimum)
    return {label: lowest[problem] for problem, labels in members.items() for label in labels}


def gap_remarks(runs: Sequence[Run], optimum: float | None) -> list[str]:
    """What the plot of gaps does not say: runs below the optimum, runs that are not there, several problems."""
    known = references(runs, optimum)
    others = [run.label for run in runs if run.label not in known]
    lines = []
    if known and others:
        lines.append(f"gap: the objective was not measured in {', '.join(others)}")
    if optimum is None:
        several = len({_problem(run.config) for run in runs if run.label in known}) > 1
        remark = "gap: model, data or loss differ between runs; F* is the lowest of those alike"
        return [*lines, remark] if several else lines
    lowest = {run.label: _lowest(run) for run in runs if run.label in known}
    return lines + [
        f"{label}: its lowest objective, {_apart(least, optimum)}, is below --optimum "
        f"{_apart(optimum, least)}; gap leaves such points out"
        for label, least in lowest.items()
        if least < optimum
    ]


def draw_gap(figure: Figure, runs: Sequence[Run], optimum: float | None) -> None:
    """Fill a figure with three plots, one line a run, and one legend for all.

    A point that is not above F* has no place on a logarithmic axis and is left out.

    Args:
        figure: an empty figure.
        runs: those without objectives have no line; at least one has some.
        optimum: F*, see `references`.
    """
    plots = figure.subplots(1, len(_ABSCISSAS), sharey=True)
    known = references(runs, optimum)
    for axes, (abscissa, unit) in zip(plots, _ABSCISSAS.items(), strict=True):
        for index, run in enumerate(runs):
            if run.label in known:
                x, y = _points(run, abscissa, known[run.label])
                axes.plot(x, y, label=shorten(run.label), **line_style(index, len(x)))
        axes.set_xlabel(unit)
    plots[0].set_ylabel("F - lowest objective seen" if optimum is None else "objective gap F - F*")
    _scale(plots)
    handles, labels = plots[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns(labels))


def _lowest(run: Run) -> float:
    return float(min(row["objective"] for row in run.objectives))


def _apart(value: float, other: float) -> str:
    """A number with as many digits as tell it from another."""
    short = f"{value:.10g}"
    return short if short != f"{other:.10g}" else repr(value)


def _problem(config: dict[str, Any]) -> str:
    """What decides the objective, as text that is equal for equal problems."""
    sections = {name: config.get(name) for name in _SECTIONS}
    for name, section in sections.items():
        if isinstance(section, dict):
            sections[name] = {key: section[key] for key in section.keys() - _HARMLESS}
    return json.dumps(sections, sort_keys=True)


def _check(optimum: float, members: list[list[str]]) -> None:
    if not math.isfinite(optimum):
        raise ReportError(f"--optimum {optimum}: not a finite number")
    if not members:
        raise ReportError("--optimum: no objective was recorded in these runs; leave it out")
    if len(members) > 1:
        groups = "; ".join(", ".join(labels) for labels in members)
        raise ReportError(
            f"--optimum is of one problem, but model, data or loss differ between these runs: "
            f"{groups}. Report each of these {len(members)} groups by itself, or leave it out"
        )


def _points(run: Run, abscissa: str, reference: float) -> tuple[list[float], list[float]]:
    """Coordinates of the points above the reference."""
    pairs = [
        (float(row[abscissa]), float(row["objective"]) - reference)
        for row in run.objectives
        if row.get(abscissa) is not None and row["objective"] - reference > _LEAST
    ]
    return [x for x, _ in pairs], [y for _, y in pairs]


def _scale(plots: Any) -> None:
    """A logarithmic axis; a run that diverged leaves the plot."""
    from matplotlib.ticker import MaxNLocator

    curves = [line.get_ydata() for line in plots[0].get_lines() if len(line.get_ydata())]
    if not curves:
        for axes in plots:
            note(axes, "no gap above 0")
        return
    ceiling = _BLOW_UP * max(curve[0] for curve in curves)
    low, highest = min(map(min, curves)), max(map(max, curves))
    high = min(highest, ceiling)
    margin = 10 ** (_MARGIN * max(math.log10(high) - math.log10(low), 1.0))
    plots[0].set_ylim(low / margin, high * margin)  # first, for autoscaling overflows at 1e300
    logarithmic(plots, low, high)
    plots[0].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    if highest > ceiling:
        for axes in plots:
            corner(axes, f"beyond {ceiling:.2g} not shown")
