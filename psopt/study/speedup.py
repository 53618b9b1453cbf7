"""What to run: for every scheme and worker count the best learning rate, then all seeds at it.

Planning is a function of the results so far: ``orders`` says which runs come next, and nothing when
the study is complete. So an interrupted study goes on from its file of results.

The search climbs a grid of powers of two with the first seed. It starts near the best rate of half
as many workers; a rate is the best when both of its neighbours are worse. Runs at other rates end
when they are slower than the best one so far, or much slower than half as many workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from psopt.study.trial import Outcome, Results, Setting, Trial

SCHEMES = ("bsp", "asp", "wasp")
_FALLS = {"asp": 1}  # powers by which the best rate falls with twice as many workers
_SLACK = 1.25


@dataclass(frozen=True)
class Study:
    """What is to be found out.

    Attributes:
        setting: what all runs share.
        workers: counts, rising, from 1.
        seeds: the first one is the search's.
        first: power of two of the first rate, at one worker.
        lowest, highest: powers of two that the search stays between.
        duel: worker count at which a rate is looked for where asp diverges and wasp converges.
        patience: asp is given so many times wasp's seconds there.
    """

    setting: Setting
    workers: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    seeds: tuple[int, ...] = (1, 2, 3)
    first: int = -3
    lowest: int = -12
    highest: int = 3
    duel: int = 32
    patience: float = 1.5


@dataclass(frozen=True)
class Cell:
    """A place of the table. One worker is the same run under every scheme, and is made once."""

    scheme: str
    workers: int
    straggling: bool

    def trial(self, power: int, seed: int) -> Trial:
        """The run at a rate with a seed."""
        scheme = self.scheme if self.workers > 1 else "bsp"
        return Trial(scheme, self.workers, self.straggling, power, seed)


@dataclass(frozen=True)
class Order:
    """A run to make, which may end at ``bound`` virtual seconds."""

    trial: Trial
    bound: float | None = None


def orders(study: Study, results: Results) -> list[Order]:
    """The runs to make next, each once; empty when the study is complete.

    Searches come first, since one step waits for the one before; few workers before many.
    """
    searches: dict[Trial, Order] = {}
    others: dict[Trial, Order] = {}
    for cell in cells(study):
        for order in _searched(study, results, cell)[1]:
            searches.setdefault(order.trial, order)
        power = chosen(study, results, cell)
        if power is not None:
            others.update({o.trial: o for o in _all_seeds(study, results, cell, power)})
    for order in _duel(study, results)[1]:
        others.setdefault(order.trial, order)
    return list((searches | others).values())


def cells(study: Study) -> list[Cell]:
    """All places of the table, by the number of workers."""
    return [
        Cell(scheme, workers, straggling)
        for workers in study.workers
        for straggling in (False, True)
        for scheme in SCHEMES
    ]


def chosen(study: Study, results: Results, cell: Cell) -> int | None:
    """The power of two of a cell's rate; None while it is not known.

    It is the best one of the search; half of it, where a seed fails to reach the target at it.
    """
    power = _searched(study, results, cell)[0]
    lowest = study.lowest if power is None else max(study.lowest, power - 2)
    while power is not None and power > lowest and _fails(study, results, cell, power):
        power -= 1
    return power


def rate_where_asp_diverges(study: Study, results: Results) -> int | None:
    """A power of two at which asp is lost with all seeds and wasp reaches the target with all."""
    return _duel(study, results)[0]


def outcomes(study: Study, results: Results, cell: Cell, power: int) -> list[Outcome]:
    """Of all seeds that were run."""
    trials = [cell.trial(power, seed) for seed in study.seeds]
    return [results[trial] for trial in trials if trial in results]


def _all_seeds(
    study: Study, results: Results, cell: Cell, power: int, bound: float | None = None
) -> list[Order]:
    trials = [cell.trial(power, seed) for seed in study.seeds]
    return [Order(trial, bound) for trial in trials if not _settled(results, trial, bound)]


def _searched(study: Study, results: Results, cell: Cell) -> tuple[int | None, list[Order]]:
    """The power that the search has found, or the run that it needs next."""
    if cell.straggling and (cell.scheme == "bsp" or cell.workers == 1):
        # The parameters of synchronous rounds do not depend on computing times.
        return _searched(study, results, Cell(cell.scheme, cell.workers, False))[0], []
    grid = range(study.lowest, study.highest + 1)
    seed = study.seeds[0]
    tried = {p: results[cell.trial(p, seed)] for p in grid if cell.trial(p, seed) in results}
    if not tried:
        start = _start(study, results, cell)
        return None, [] if start is None else [_first(study, results, cell, start)]
    best = min(tried, key=lambda power: _rank(power, tried[power]))
    near = (best - 1,) if tried[best].lost else (best - 1, best + 1)
    missing = [power for power in near if power in grid and power not in tried]
    if not missing:
        return best, []
    found = tried[best]
    bound = found.bound if found.seconds is None else found.seconds
    return None, [Order(cell.trial(missing[0], seed), bound)]


def _start(study: Study, results: Results, cell: Cell) -> int | None:
    """Where a search begins: at the best rate of equal workers, or near that of half as many of them."""
    if cell.straggling:
        return _searched(study, results, Cell(cell.scheme, cell.workers, False))[0]
    before = _half(study, cell)
    if before is None:
        return study.first
    power = _searched(study, results, before)[0]
    return None if power is None else max(study.lowest, power - _FALLS.get(cell.scheme, 0))


def _first(study: Study, results: Results, cell: Cell, start: int) -> Order:
    """The first run of a search; it may be a little slower than half as many workers were."""
    trial, before = cell.trial(start, study.seeds[0]), _half(study, cell)
    power = None if before is None else _searched(study, results, before)[0]
    if before is None or power is None:
        return Order(trial)
    found = results.get(before.trial(power, study.seeds[0]))
    if found is None or found.seconds is None:
        return Order(trial)
    return Order(trial, _SLACK * found.seconds)


def _half(study: Study, cell: Cell) -> Cell | None:
    """The place of the next smaller number of workers, if there is one."""
    before = study.workers.index(cell.workers) - 1
    if before < 0:
        return None
    return Cell(cell.scheme, study.workers[before], cell.straggling)


def _rank(power: int, outcome: Outcome) -> tuple[int, float]:
    """Lower is better: by time, then by accuracy, then, among the lost, by rate."""
    if outcome.seconds is not None:
        return 0, outcome.seconds
    if outcome.lost or outcome.accuracy is None:
        return 2, power
    return 1, -outcome.accuracy


def _fails(study: Study, results: Results, cell: Cell, power: int) -> bool:
    trials = [cell.trial(power, seed) for seed in study.seeds]
    return any(
        _settled(results, trial, None) and results[trial].seconds is None for trial in trials
    )


def _settled(results: Results, trial: Trial, bound: float | None) -> bool:
    """True when a run is known as far as ``bound``."""
    if trial not in results:
        return False
    outcome = results[trial]
    limit = math.inf if bound is None else bound
    known = math.inf if outcome.bound is None else outcome.bound
    return outcome.seconds is not None or outcome.diverged or known >= limit


def _duel(study: Study, results: Results) -> tuple[int | None, list[Order]]:
    """From wasp's best rate upwards: the power that was looked for, or the runs needed next."""
    wasp, asp = Cell("wasp", study.duel, False), Cell("asp", study.duel, False)
    best = chosen(study, results, wasp) if study.duel in study.workers else None
    if best is None:
        return None, []
    for power in range(best, min(best + 2, study.highest) + 1):
        if needed := _all_seeds(study, results, wasp, power):
            return None, needed
        times = [outcome.seconds for outcome in outcomes(study, results, wasp, power)]
        reached = [seconds for seconds in times if seconds is not None]
        if len(reached) < len(times):
            continue
        bound = study.patience * max(reached)
        if needed := _all_seeds(study, results, asp, power, bound):
            return None, needed
        if all(outcome.lost for outcome in outcomes(study, results, asp, power)):
            return power, []
    return None, []
