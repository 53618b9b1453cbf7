"""What came of a study: Markdown tables, the facts beside them, and the plot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from psopt.report.style import GREY, figure, line_style, save
from psopt.study.speedup import (
    SCHEMES,
    Cell,
    Study,
    cells,
    chosen,
    outcomes,
    rate_where_asp_diverges,
)
from psopt.study.trial import Results


@dataclass(frozen=True)
class Entry:
    """A place of the table.

    Attributes:
        power: of two: the learning rate; None while it is not known.
        seconds: median over the seeds of the virtual time to the target; infinite when most of them
            missed it.
        reached: seeds that reached the target.
        seeds: that were run.
        speedup: serial seconds over ``seconds``.
        computing: share of the workers' time that went into computing, the mean of the seeds.
        staleness: mean of the seeds.
    """

    power: int | None
    seconds: float = math.inf
    reached: int = 0
    seeds: int = 0
    speedup: float = 0.0
    computing: float = 0.0
    staleness: float = 0.0


def entries(study: Study, results: Results) -> dict[Cell, Entry]:
    """All places of the table, those without a result too."""
    serial = _entry(study, results, Cell("bsp", 1, False), None)
    return {cell: _entry(study, results, cell, serial.seconds) for cell in cells(study)}


def _entry(study: Study, results: Results, cell: Cell, serial: float | None) -> Entry:
    power = chosen(study, results, cell)
    runs = [] if power is None else outcomes(study, results, cell, power)
    if not runs:
        return Entry(power)
    times = [math.inf if run.seconds is None else run.seconds for run in runs]
    seconds = median(times)
    return Entry(
        power,
        seconds,
        sum(math.isfinite(value) for value in times),
        len(runs),
        (seconds if serial is None else serial) / seconds,
        mean(run.computing for run in runs),
        mean(run.staleness for run in runs),
    )


def page(study: Study, results: Results) -> str:
    """Both tables and the facts, as Markdown."""
    table = entries(study, results)
    target, slow = 100 * study.setting.target, study.setting.slowdown
    parts = [
        f"### Equal workers: virtual seconds to {target:g} %, speed-up, learning rate",
        _table(study, table, straggling=False),
        f"### Worker 0 is a straggler, {slow:g} times slower",
        _table(study, table, straggling=True),
        "### Beside the tables",
        "\n".join(f"- {fact}" for fact in facts(study, results)),
    ]
    return "\n\n".join(parts) + "\n"


def facts(study: Study, results: Results) -> Iterator[str]:
    """What the tables do not show, a sentence each."""
    table, most = entries(study, results), max(study.workers)
    asp = table[Cell("asp", most, False)]
    if asp.seeds:
        yield f"{most} equal workers, asp: mean staleness {asp.staleness:.2f} (N - 1 = {most - 1})"
    for straggling, name in ((False, "equal workers"), (True, "with the straggler")):
        shares = [
            f"{scheme} {100 * table[Cell(scheme, most, straggling)].computing:.0f} %"
            for scheme in SCHEMES
        ]
        yield f"{most} workers, {name}: share of their time that workers compute: {', '.join(shares)}"
    yield _duel(study, results)


def _duel(study: Study, results: Results) -> str:
    power = rate_where_asp_diverges(study, results)
    if power is None:
        return f"{study.duel} workers: no rate was found at which asp diverges and wasp converges"
    wasp = outcomes(study, results, Cell("wasp", study.duel, False), power)
    asp = outcomes(study, results, Cell("asp", study.duel, False), power)
    seconds = median(run.seconds for run in wasp if run.seconds is not None)
    ends = ", ".join(
        "gradient not finite" if run.diverged else f"{100 * (run.accuracy or 0):.1f} %"
        for run in asp
    )
    return (
        f"{study.duel} workers, learning rate {rate(power)}: asp diverges with every seed "
        f"(ends: {ends}), wasp reaches {100 * study.setting.target:g} % with every seed "
        f"(median {seconds:.1f} s)"
    )


def rate(power: int) -> str:
    """A power of two as people write it."""
    return f"{2**power}" if power >= 0 else f"1/{2**-power}"


def _table(study: Study, table: dict[Cell, Entry], *, straggling: bool) -> str:
    names = [f"{s} {column}" for s in SCHEMES for column in ("s", "speed-up", "rate")]
    lines = [["workers", *names], ["---:"] * (1 + len(names))]
    for workers in study.workers:
        line = [str(workers)]
        for scheme in SCHEMES:
            line += _columns(table[Cell(scheme, workers, straggling)])
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _columns(entry: Entry) -> Sequence[str]:
    if not math.isfinite(entry.seconds) or entry.power is None:
        return "-", "-", "-"
    missed = "" if entry.reached == entry.seeds else f" ({entry.reached} of {entry.seeds})"
    return f"{entry.seconds:.1f}{missed}", f"{entry.speedup:.2f}", rate(entry.power)


def draw(study: Study, results: Results, stem: Path) -> list[Path]:
    """The plot: speed-up against workers; the files.

    Args:
        study: of the results.
        results: all or some.
        stem: the file without its suffix.
    """
    table = entries(study, results)
    with figure(3.2) as page:
        plots = page.subplots(1, 2, sharey=True)
        for axes, straggling in zip(plots, (False, True), strict=True):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.plot(study.workers, study.workers, color=GREY, linewidth=0.8, label="linear")
            for index, scheme in enumerate(SCHEMES):
                points = [(n, table[Cell(scheme, n, straggling)].speedup) for n in study.workers]
                shown = [(n, speedup) for n, speedup in points if speedup > 0]
                style = line_style(index, len(study.workers))
                axes.plot(*zip(*shown, strict=True), label=scheme, **style)
            axes.set_xticks(study.workers, [str(n) for n in study.workers])
            slow = f"worker 0 is {study.setting.slowdown:g} times slower"
            axes.set_title(slow if straggling else "equal workers")
            axes.set_xlabel("workers")
        ticks = [2.0**power for power in range(-2, 7)]
        plots[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        plots[0].set_ylabel(f"speed-up to {100 * study.setting.target:g} % (virtual time)")
        plots[0].legend()
        return save(page, stem, ("png",))
