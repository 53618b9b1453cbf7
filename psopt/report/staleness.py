"""How stale the gradients were, one histogram a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from psopt.report.runs import Run
from psopt.report.style import BLUE, VERMILION, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ALIKE = 3  # runs whose largest staleness differs by more than this factor get axes of their own
_MOST_BARS = 40
_PANEL = 1.75  # inches
_TITLES = 96  # so many characters of titles fit side by side


def asynchronous(runs: Sequence[Run]) -> list[Run]:
    """The runs of which at least one update was stale."""
    return [run for run in runs if any(run.staleness)]


def staleness_height(runs: Sequence[Run]) -> float:
    """Inches that `draw_staleness` wants for so many runs."""
    return 0.4 + _PANEL * math.ceil(len(runs) / _columns(runs))


def draw_staleness(figure: Figure, runs: Sequence[Run]) -> None:
    """Fill a figure with a histogram a run: share of updates against staleness.

    Args:
        figure: an empty figure.
        runs: at least one; each has staleness counts.
    """
    columns = _columns(runs)
    rows = math.ceil(len(runs) / columns)
    highest = [max(run.staleness) for run in runs]
    alike = max(highest) <= _ALIKE * min(highest)
    plots = figure.subplots(rows, columns, sharex=alike, sharey=alike, squeeze=False)
    for axes, run, most in zip(plots.flat, runs, highest, strict=False):
        _histogram(axes, run, math.ceil(((max(highest) if alike else most) + 1) / _MOST_BARS))
        axes.tick_params(labelbottom=True)
    for axes in plots.flat[len(runs) :]:
        axes.set_visible(False)
    figure.supxlabel("staleness (versions)", fontsize=8.5)
    figure.supylabel("share of updates (%)", fontsize=8.5)


def _columns(runs: Sequence[Run]) -> int:
    """As many panels side by side as their titles allow."""
    longest = max(len(shorten(run.label)) for run in runs)
    fitting = max(1, min(3, _TITLES // longest))
    return 2 if len(runs) == 4 and fitting == 3 else min(len(runs), fitting)


def _histogram(axes: Axes, run: Run, width: int) -> None:
    """Bars of `width` versions each, and the mean."""
    from matplotlib.ticker import MaxNLocator

    counts = run.staleness
    total = sum(counts.values())
    bars: dict[int, int] = {}
    for value, count in counts.items():
        bars[value // width] = bars.get(value // width, 0) + count
    centres = [bar * width + (width - 1) / 2 for bar in bars]
    heights = [100 * count / total for count in bars.values()]
    axes.bar(centres, heights, width=0.85 * width, color=BLUE)
    mean = sum(value * count for value, count in counts.items()) / total
    axes.axvline(mean, color=VERMILION, linewidth=1.1, linestyle="--")
    axes.set_title(shorten(run.label))
    axes.text(
        0.98,
        0.95,
        f"mean {mean:.2f}, max {max(counts)}\n{total:,} updates",
        transform=axes.transAxes,
        ha="right",
        va="top",
        fontsize=7.5,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.grid(visible=False, axis="x")
