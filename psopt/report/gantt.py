"""What each rank did, drawn as one lane a rank over a short stretch of the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from psopt.report.lanes import Lane, choose, extent, lanes, window
from psopt.report.runs import ReportError, Run
from psopt.report.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_KINDS = {
    "compute": BLUE,
    "wait": ORANGE,
    "send": VERMILION,
    "receive": SKY,
    "update": GREEN,
    "evaluate": PURPLE,
    "checkpoint": BLACK,
}
_OTHER = "#8C8C8C"
_MOST_LANES = 33
_LANE = 0.24  # inches
_BAR = 0.72  # of a lane
_COLUMN = 34.0  # points, for the column of waiting shares
_THIN = 0.004  # of the window: a bar below it would vanish under a white edge
_GAP = 0.0004  # of the window: nobody sees a pause below it
_SEAM = 0.8  # points, between a slice and the next


def parse_window(text: str) -> tuple[float, float]:
    """Start and end in seconds of START:END; infinite where one is left out.

    Raises:
        ReportError: it is anything else, or ends before it starts.
    """
    start, colon, end = text.partition(":")
    try:
        a, b = float(start or "-inf"), float(end or "inf")
    except ValueError:
        a = b = math.nan
    if not colon or not a < b:
        raise ReportError(
            f"--window {text}: not START:END in seconds with START below END; "
            "write 2.5:4, 2.5: or :4"
        )
    return a, b


def check_window(runs: Sequence[Run], asked: tuple[float, float]) -> None:
    """Refuse a window in which the timeline of a run shows nothing.

    Args:
        runs: those without a timeline do not matter, as long as one has it.
        asked: start and end in seconds.

    Raises:
        ReportError: it names the run, and from when to when its timeline goes.
    """
    recorded = [(run, every) for run in runs if (every := lanes(run.events))]
    if not recorded:
        raise ReportError("--window: no timeline was recorded; leave it out")
    for run, every in recorded:
        spans = (span for lane in every for span in lane.spans)
        if not any(start < asked[1] and end > asked[0] for _, start, end in spans):
            first, last = extent(every)
            raise ReportError(
                f"--window: {run.label} did nothing in it; its timeline goes from {first:.3f} s "
                f"to {last:.3f} s"
            )


def timeline_height(run: Run) -> float:
    """Inches that `draw_timeline` wants for a run."""
    return 1.35 + _LANE * min(len(lanes(run.events)), _MOST_LANES)


def draw_timeline(figure: Figure, run: Run, asked: tuple[float, float] | None = None) -> None:
    """Fill a figure with the lanes of a run, its legend, and each rank's waiting share.

    Args:
        figure: an empty figure.
        run: it has timeline events.
        asked: start and end, in seconds, of what is drawn; where infinite, of the trace. None for
            a typical stretch.
    """
    every = lanes(run.events)
    shown = choose(every, _MOST_LANES)
    start, end = (
        window(every, run.step_seconds) if asked is None else _bounded(asked, extent(every))
    )
    zero, unit, factor = (start, "ms", 1e3) if end - start < 1.0 else (0.0, "s", 1.0)
    axes = figure.subplots()
    kinds = _draw_lanes(axes, shown, start, end, zero, factor)
    axes.set_xlim((start - zero) * factor, (end - zero) * factor)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_yticks(range(len(shown)), [lane.label for lane in shown])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    if zero:
        axes.set_xlabel(f"time after {start:.3f} s of the run ({unit})")
    else:
        axes.set_xlabel(f"time since the start of the run ({unit})")
    figure.suptitle(_title(run, len(shown), len(every)), x=0.01, ha="left", fontsize=9)
    _waiting_column(axes, shown)
    _legend(figure, kinds)


def _draw_lanes(
    axes: Axes, shown: Sequence[Lane], start: float, end: float, zero: float, factor: float
) -> list[str]:
    """Draw the bars; the kinds that appear, in the legend's order."""
    present: set[str] = set()
    for row, lane in enumerate(shown):
        bars: dict[str, list[tuple[float, float]]] = {}
        for kind, a, b in lane.spans:
            if b > start and a < end:
                a, b = max(a, start), min(b, end)
                bars.setdefault(kind, []).append(((a - zero) * factor, (b - a) * factor))
        length = (end - start) * factor
        thin = _THIN * length
        for kind, pieces in bars.items():
            for edge in (0.0, 0.25):
                axes.broken_barh(
                    [piece for piece in pieces if (piece[1] > thin) == (edge > 0)],
                    (row - _BAR / 2, _BAR),
                    facecolor=_KINDS.get(kind, _OTHER),
                    edgecolor="white",
                    linewidth=edge,
                )
        seams = _seams(bars.get("compute", ()), length)
        axes.vlines(seams, row - _BAR / 2, row + _BAR / 2, colors="white", linewidth=_SEAM)
        present |= bars.keys()
    known = [kind for kind in _KINDS if kind in present]
    return known + sorted(present - _KINDS.keys())


def _bounded(asked: tuple[float, float], trace: tuple[float, float]) -> tuple[float, float]:
    start, end = (a if math.isfinite(a) else b for a, b in zip(asked, trace, strict=True))
    return start, end


def _seams(bars: Sequence[tuple[float, float]], length: float) -> list[float]:
    """Where a bar touches the next one, of (start, width) by start, if both are wide enough."""
    return [
        b
        for (a, width), (b, next_width) in pairwise(bars)
        if b - (a + width) < _GAP * length and min(width, next_width) > _THIN * length
    ]


def _waiting_column(axes: Axes, shown: Sequence[Lane]) -> None:
    """The share of waiting over the whole trace, to the right of each lane."""
    for row, lane in enumerate(shown):
        share = lane.waiting
        axes.annotate(
            "-" if share is None else f"{100 * share:.0f} %",
            (1.0, row),
            xycoords=axes.get_yaxis_transform(),
            xytext=(_COLUMN, 0.0),
            textcoords="offset points",
            ha="right",
            va="center_baseline",
            fontsize=8,
        )
    axes.annotate(
        "waiting,\nwhole trace",
        (1.0, 1.0),
        xycoords="axes fraction",
        xytext=(_COLUMN, 2.0),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=7.5,
    )


def _legend(figure: Figure, kinds: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=_KINDS.get(kind, _OTHER), label=kind) for kind in kinds]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(kinds), handlelength=1.2)


def _title(run: Run, shown: int, every: int) -> str:
    scheme = f" ({run.scheme})" if run.scheme and run.scheme not in run.label else ""
    selection = f", {shown} of {every} ranks" if shown < every else ""
    return f"{shorten(run.label)}{scheme}{selection}"
