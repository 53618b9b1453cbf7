"""Which ridge runs to make, from those that are there: an interrupted study goes on from its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low

from psopt.study.convex.ridge import Outcome, Setting, Trial, methods

Results = Mapping[Trial, Outcome]

ADMM = "admm"


@dataclass(frozen=True)
class Study:
    """What is to be found out.

    Attributes:
        setting: what all runs share.
        columns: of the table: names of ``methods`` without their values of rho.
        samples, shards: rows of the table.
        seeds: how many, from 1.
    """

    setting: Setting
    columns: tuple[str, ...]
    samples: tuple[int, ...] = (6000, 10_000, 14_000)
    shards: tuple[int, ...] = (4, 16, 64)
    seeds: int = 5


@dataclass(frozen=True)
class Cell:
    """A place of the table."""

    column: str
    samples: int
    shards: int


def columns(setting: Setting) -> tuple[str, ...]:
    """All that there are; ADMM once."""
    return tuple(dict.fromkeys(_column(name) for name in methods(setting)))


def cells(study: Study) -> list[Cell]:
    """All places of the table, few shards first."""
    return [Cell(c, n, m) for m in study.shards for c in study.columns for n in study.samples]


def next_trial(study: Study, results: Results) -> Trial | None:
    """The run to make next; all places with a seed before the next seed."""
    for seed in range(1, study.seeds + 1):
        for cell in cells(study):
            for name in _names(study, results, cell, seed):
                trial = Trial(name, cell.samples, cell.shards, seed)
                if trial not in results:
                    return trial
    return None


def chosen(study: Study, results: Results, cell: Cell) -> str:
    """The method of a place: with ADMM that of the rho with which seed 1 took the fewest rounds."""
    found = {
        name: results[trial]
        for name in methods(study.setting)
        if _column(name) == cell.column
        and (trial := Trial(name, cell.samples, cell.shards, 1)) in results
    }
    return min(found, key=lambda name: rank(found[name]), default=cell.column)


def outcomes(study: Study, results: Results, cell: Cell) -> list[Outcome]:
    """Of the seeds that were run."""
    name, seeds = chosen(study, results, cell), range(1, study.seeds + 1)
    trials = [Trial(name, cell.samples, cell.shards, seed) for seed in seeds]
    return [results[trial] for trial in trials if trial in results]


def middle(found: list[Outcome]) -> Outcome:
    """The median: those that arrived by their rounds, then the others by their gap, then the lost."""
    return sorted(found, key=rank)[median_low(range(len(found)))]


def rank(outcome: Outcome) -> tuple[int, float]:
    """Lower is better."""
    if outcome.end == "reached":
        return 0, outcome.rounds
    return (2, 0.0) if outcome.end == "diverged" else (1, outcome.gap)


def _names(study: Study, results: Results, cell: Cell, seed: int) -> list[str]:
    if seed > 1:
        return [chosen(study, results, cell)]
    return [name for name in methods(study.setting) if _column(name) == cell.column]


def _column(name: str) -> str:
    return ADMM if name.startswith(ADMM) else name
