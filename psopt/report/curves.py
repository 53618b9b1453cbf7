"""Test loss and accuracy against time and against samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psopt.report.runs import Run
from psopt.report.style import GREY, corner, line_style, logarithmic, note, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ABSCISSAS = {"seconds": "training time (s)", "samples": "samples"}
_ORDINATES = {"test_loss": "test loss", "test_accuracy": "test accuracy (%)"}
_LEGEND_CHARACTERS = 115
_DECADES = 1.3  # a loss that spans more powers of ten than this is drawn on a logarithmic axis
_BLOW_UP = 3.0  # a loss beyond so many times the largest first loss leaves the axes


def draw_curves(figure: Figure, runs: Sequence[Run]) -> None:
    """Fill a figure with 2x2 plots, one line a run, and one legend for all.

    Args:
        figure: an empty figure.
        runs: those without evaluations have no line.
    """
    plots = figure.subplots(2, 2, sharex="col", sharey="row")
    shown = [(index, run) for index, run in enumerate(runs) if run.evaluations]
    for row, (name, label) in enumerate(_ORDINATES.items()):
        for column, (abscissa, unit) in enumerate(_ABSCISSAS.items()):
            axes = plots[row, column]
            for index, run in shown:
                x, y = _points(run, abscissa, name)
                axes.plot(x, y, label=shorten(run.label), **line_style(index, len(x)))
            if column == 0:
                axes.set_ylabel(label)
            if row == 1:
                axes.set_xlabel(unit)
    scale_loss(plots[0], [_points(run, "seconds", "test_loss")[1] for _, run in shown])
    _targets(plots[1], shown)
    for axes in plots[1]:
        thousands(axes)
    for row, name in enumerate(_ORDINATES):
        if not any(value is not None for _, run in shown for value in _values(run, name)):
            for axes in plots[row]:
                note(axes, f"no {name.replace('_', ' ')} was recorded")
                if not shown:
                    axes.set_xticks([])
    if shown:
        handles, labels = plots[1, 0].get_legend_handles_labels()
        columns = legend_columns([shorten(run.label) for run in runs])
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def legend_columns(labels: Sequence[str]) -> int:
    """As many columns as the page is wide, with rows evenly filled; there is room for a target."""
    entries = len(labels) + 1
    fitting = max(1, min(entries, _LEGEND_CHARACTERS // (max(map(len, labels)) + 8)))
    return math.ceil(entries / math.ceil(entries / fitting))


def _values(run: Run, name: str) -> list[float | None]:
    return [row.get(name) for row in run.evaluations]


def _points(run: Run, abscissa: str, name: str) -> tuple[list[float], list[float]]:
    """Coordinates of the rows that have both; accuracy in per cent."""
    factor = 100.0 if name == "test_accuracy" else 1.0
    pairs = [
        (float(x), factor * float(y))
        for x, y in zip(_values(run, abscissa), _values(run, name), strict=True)
        if x is not None and y is not None
    ]
    return [x for x, _ in pairs], [y for _, y in pairs]


def scale_loss(plots: Any, curves: Sequence[Sequence[float]]) -> None:
    """A logarithmic axis where the loss spans decades; what diverged leaves the plot.

    Args:
        plots: that show the curves beside each other.
        curves: losses, in order; empty ones do not count.
    """
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return
    ceiling = _BLOW_UP * max(abs(curve[0]) for curve in curves)
    least, most = min(map(min, curves)), max(map(max, curves))
    low, high = least, min(most, ceiling)
    if low > 0 and math.log10(high / low) > _DECADES:
        logarithmic(plots, low, high)
        low, high = low / 1.15, high * 1.15
    else:
        margin = 0.05 * (high - low or abs(high) or 1.0)
        low, high = low - margin, high + margin
    plots[0].set_ylim(low, high)
    if most > ceiling:
        for axes in plots:
            corner(axes, f"beyond {ceiling:.2g} not shown")


def _targets(plots: Any, shown: Sequence[tuple[int, Run]]) -> None:
    """A line at each accuracy that a run was to reach."""
    targets = sorted({run.target for _, run in shown if run.target is not None})
    for target in targets:
        for axes in plots:
            axes.axhline(
                100 * target,
                color=GREY,
                linewidth=0.9,
                linestyle=(0, (4, 2)),
                zorder=1,
                label=f"target {100 * target:g} %",
            )


def thousands(axes: Axes) -> None:
    """12,000 instead of 12000; the axis stays plain where numbers are small."""
    from matplotlib.ticker import EngFormatter

    if axes.get_xlim()[1] >= 10_000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
