"""The ridge study's table, as Markdown and as CSV."""

from __future__ import annotations

from psopt.study.convex.plan import ADMM, Cell, Results, Study, chosen, middle, outcomes
from psopt.study.convex.ridge import Outcome, methods

_CSV = "method,samples,shards,seeds,reached,diverged,rounds,gap,passes"


def page(study: Study, results: Results) -> str:
    """A row for each number of samples and of shards, a column for each method; medians over the seeds."""
    lines = [["N", "m", *study.columns], ["---:"] * (2 + len(study.columns))]
    for samples in study.samples:
        for shards in study.shards:
            row = [_text(study, results, Cell(name, samples, shards)) for name in study.columns]
            lines.append([f"{samples:,}", str(shards), *row])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\nSeeds: {_seeds(study, results)}.\n"


def values(study: Study, results: Results) -> str:
    """The same medians, a line each, with the gap and the gradient passes."""
    lines = [_CSV]
    for samples in study.samples:
        for shards in study.shards:
            for column in study.columns:
                cell = Cell(column, samples, shards)
                if found := outcomes(study, results, cell):
                    lines.append(_line(chosen(study, results, cell), cell, found))
    return "\n".join(lines) + "\n"


def _line(name: str, cell: Cell, found: list[Outcome]) -> str:
    ends, typical = [run.end for run in found], middle(found)
    counts = f"{len(found)},{ends.count('reached')},{ends.count('diverged')}"
    figures = f"{typical.rounds},{typical.gap:.3g},{typical.passes:.0f}"
    return f'"{name}",{cell.samples},{cell.shards},{counts},{figures}'


def _text(study: Study, results: Results, cell: Cell) -> str:
    found = outcomes(study, results, cell)
    if not found:
        return "-"
    name, typical = chosen(study, results, cell), middle(found)
    text = _end(typical, methods(study.setting)[name].rounds)
    alike = sum(run.end == typical.end for run in found)
    some = "" if alike == len(found) else f" ({alike} of {len(found)})"
    rho = f" (rho {name.rpartition(' ')[2]})" if cell.column == ADMM else ""
    return text + some + rho


def _end(run: Outcome, rounds: int) -> str:
    if run.end == "reached":
        return str(run.rounds)
    if run.end == "diverged":
        return "diverges"
    return f"{run.gap:.1e}" if rounds == 1 or run.end != "limit" else f">{rounds}"


def _seeds(study: Study, results: Results) -> str:
    """How many seeds the places have."""
    counts = {
        len(outcomes(study, results, Cell(column, samples, shards)))
        for column in study.columns
        for samples in study.samples
        for shards in study.shards
    }
    least, most = min(counts), max(counts)
    return str(most) if least == most else f"{least} to {most}"
