"""Time and speed-up against the number of workers, of a sweep in which that differs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psopt.report.curves import legend_columns
from psopt.report.style import GREY, line_style, shorten
from psopt.report.sweep import MEASURES, SEED, Group, Measure, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORKERS = "cluster.workers"
_TIME, _TIME_TO_TARGET = (
    next(measure for measure in MEASURES if measure.name == name)
    for name in ("seconds", "seconds_to_target")
)
_LABELS = {_TIME: "training time (s)", _TIME_TO_TARGET: "time to the target (s)"}


@dataclass(frozen=True, slots=True)
class Scaling:
    """The runs that differ in their number of workers, and in seeds, alone.

    Attributes:
        label: what they have in common.
        workers: rising.
        seconds: means over the runs of each number.
    """

    label: str
    workers: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def speedup(self) -> tuple[float, ...]:
        """Of each number over the fewest workers that there are."""
        return tuple(self.seconds[0] / each for each in self.seconds)


def measure_of(sweep: Sweep) -> Measure:
    """What is compared: the time to a target where the runs have one, else all of their training."""
    return _TIME_TO_TARGET if _TIME_TO_TARGET in sweep.measures else _TIME


def scalings(sweep: Sweep) -> list[Scaling]:
    """Of a sweep, those with two numbers of workers or more; runs that miss the target count nowhere."""
    if WORKERS not in sweep.keys:
        return []
    measure, found = measure_of(sweep), []
    for family in sweep.groups([key for key in sweep.keys if key not in (WORKERS, SEED)]):
        by_workers = _by_workers(family)
        times = [(n, spread.mean) for n, each in by_workers if (spread := each.spread(measure))]
        times = [(n, seconds) for n, seconds in times if seconds > 0]
        if len(times) > 1:
            workers, seconds = zip(*times, strict=True)
            found.append(Scaling(family.label, workers, seconds))
    return found


def draw_scalings(figure: Figure, measure: Measure, shown: Sequence[Scaling]) -> None:
    """Fill a figure with two plots, one line for each.

    Args:
        figure: to be filled.
        measure: what the seconds are.
        shown: at least one.
    """
    time, speed = figure.subplots(1, 2)
    every = sorted({n for each in shown for n in each.workers})
    for index, each in enumerate(shown):
        style = line_style(index, len(each.workers))
        time.plot(each.workers, each.seconds, label=shorten(each.label), **style)
        speed.plot(each.workers, each.speedup, **style)
    ideal = [n / every[0] for n in every]
    speed.plot(every, ideal, color=GREY, linestyle="--", linewidth=0.9, label="ideal", zorder=1)
    time.set_ylabel(_LABELS[measure])
    time.set_ylim(bottom=0)
    base = "1 worker" if every[0] == 1 else f"{every[0]} workers"
    speed.set_ylabel(f"speed-up over {base}")
    for axes in (time, speed):
        axes.set_xlabel("workers")
        axes.set_xscale("log", base=2)
        axes.set_xticks(every, [str(n) for n in every])
        axes.minorticks_off()
    speed.set_yscale("log", base=2)
    low = min(1.0, *(min(each.speedup) for each in shown))
    powers = range(math.floor(math.log2(low)), math.ceil(math.log2(ideal[-1])) + 1)
    speed.set_yticks([2.0**p for p in powers], [f"{2.0**p:g}" for p in powers])
    handles, labels = time.get_legend_handles_labels()
    handles, labels = [*handles, *speed.get_legend_handles_labels()[0]], [*labels, "ideal"]
    columns = legend_columns([shorten(each.label) for each in shown])
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _by_workers(family: Group) -> list[tuple[int, Group]]:
    found: dict[int, Group] = {}
    for run in family.runs:
        workers = run.entry.assignment.get(WORKERS)
        if isinstance(workers, int) and not isinstance(workers, bool) and workers > 0:
            before = found.get(workers, Group({}, ()))
            found[workers] = Group({WORKERS: workers}, (*before.runs, run))
    return sorted(found.items())
