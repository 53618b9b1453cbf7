"""Test loss and accuracy of a sweep's groups: the mean over the runs, with a band of one deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psopt.report.curves import legend_columns, scale_loss, thousands
from psopt.report.style import line_style, note, shorten
from psopt.report.sweep import Group, SweptRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LINES = 14
"""Groups that are drawn; more lines cannot be told apart."""

_ABSCISSAS = {"samples": "samples", "seconds": "training time (s)"}
_ORDINATES = {"test_loss": "test loss", "test_accuracy": "test accuracy (%)"}
_POINTS = 200
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Band:
    """A mean with its deviation.

    Attributes:
        x: abscissas, rising.
        mean: over the runs.
        deviation: of the sample; zeros of a single run.
        runs: how many.
    """

    x: Array
    mean: Array
    deviation: Array
    runs: int


def band(runs: Sequence[SweptRun], abscissa: str, name: str) -> Band | None:
    """The mean curve of some runs; None where they have none.

    Runs that were evaluated equally often are averaged evaluation by evaluation, abscissas too. Others
    are interpolated, over the stretch that all of them have.
    """
    curves = [curve for run in runs if (curve := _curve(run, abscissa, name)) is not None]
    if not curves:
        return None
    if len({len(x) for x, _ in curves}) == 1:
        grid = np.mean([x for x, _ in curves], axis=0)
        values = np.stack([y for _, y in curves])
    else:
        low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
        if low > high:
            return None
        inside = np.unique(np.concatenate([x[(x >= low) & (x <= high)] for x, _ in curves]))
        grid = inside if len(inside) <= _POINTS else np.linspace(low, high, _POINTS)
        values = np.stack([np.interp(grid, x, y) for x, y in curves])
    alone = len(curves) == 1
    deviation = np.zeros_like(grid) if alone else values.std(axis=0, ddof=1)
    return Band(grid, values.mean(axis=0), deviation, len(curves))


def draw_sweep(figure: Figure, groups: Sequence[Group]) -> list[str]:
    """Fill a figure with 2x2 plots, one line a group.

    Returns:
        What has to be said of it: which groups are not drawn.
    """
    with_curves = [group for group in groups if any(run.evaluations for run in group.runs)]
    shown = with_curves[:MOST_LINES]
    plots = figure.subplots(2, 2, sharex="col", sharey="row")
    for row, (name, label) in enumerate(_ORDINATES.items()):
        bands = [[band(group.runs, abscissa, name) for group in shown] for abscissa in _ABSCISSAS]
        for column, unit in enumerate(_ABSCISSAS.values()):
            axes = plots[row, column]
            for index, (group, each) in enumerate(zip(shown, bands[column], strict=True)):
                if each is not None:
                    _draw(axes, index, group, each)
            if column == 0:
                axes.set_ylabel(label)
            if row == 1:
                axes.set_xlabel(unit)
        found = [each for each in (*bands[0], *bands[1]) if each is not None]
        if not found:
            for axes in plots[row]:
                note(axes, f"no {name.replace('_', ' ')} was recorded")
        elif name == "test_loss":
            scale_loss(plots[row], [each.mean.tolist() for each in found])
    for axes in plots[1]:
        thousands(axes)
    if shown:
        handles, labels = plots[1, 0].get_legend_handles_labels()
        columns = legend_columns([shorten(group.label) for group in shown])
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    left = len(with_curves) - len(shown)
    return [f"the curves show the first {MOST_LINES} groups, and leave out {left}"] if left else []


def _draw(axes: Any, index: int, group: Group, each: Band) -> None:
    style = line_style(index, len(each.x))
    axes.plot(each.x, each.mean, label=shorten(group.label), **style)
    if each.runs > 1:
        low, high = each.mean - each.deviation, each.mean + each.deviation
        axes.fill_between(each.x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def _curve(run: SweptRun, abscissa: str, name: str) -> tuple[Array, Array] | None:
    """Coordinates of the evaluations that have both, at rising abscissas; accuracy in per cent."""
    factor = 100.0 if name == "test_accuracy" else 1.0
    points = {
        float(row[abscissa]): factor * float(row[name])
        for row in run.evaluations
        if row.get(abscissa) is not None and row.get(name) is not None
    }
    if not points:
        return None
    x = sorted(points)
    return np.array(x), np.array([points[each] for each in x])
