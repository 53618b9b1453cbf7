"""Planning: which runs a study makes, with outcomes from a formula instead of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from psopt.study.speedup import Cell, Order, Study, chosen, orders, rate_where_asp_diverges
from psopt.study.trial import Outcome, Setting, Trial

STUDY = Study(Setting("sample"), workers=(1, 2, 4), seeds=(1, 2, 3), first=-3, duel=4)
GOOD = Outcome(
    seconds=10.0,
    bound=None,
    accuracy=0.98,
    loss=0.1,
    gradients=100,
    diverged=False,
    staleness=0.0,
    computing=1.0,
    wall=0.0,
)
LOST = replace(GOOD, seconds=None, accuracy=0.1)
DIVERGED = replace(LOST, diverged=True)


def best_power(trial: Trial) -> int:
    """Bsp keeps the rate of one worker, wasp too; asp halves it with every doubling of the workers."""
    return -3 if trial.scheme != "asp" else -2 - trial.workers.bit_length()


def formula(trial: Trial) -> Outcome:
    """A valley around the best power; two powers above it asp is lost."""
    off = trial.power - best_power(trial)
    if off >= 2 and trial.scheme == "asp":
        return DIVERGED
    seconds = (10.0 + 3 * abs(off) + 0.1 * trial.seed) / trial.workers
    return replace(GOOD, seconds=seconds * (2 if trial.straggling else 1))


def bounded(outcome: Outcome, bound: float | None) -> Outcome:
    late = bound is not None and outcome.seconds is not None and outcome.seconds > bound
    return replace(outcome, bound=bound, seconds=None if late else outcome.seconds)


def complete(
    study: Study, answer: Callable[[Trial], Outcome] = formula
) -> tuple[dict[Trial, Outcome], list[Order]]:
    """Answer all orders one by one; (results, the orders in that order)."""
    results: dict[Trial, Outcome] = {}
    made: list[Order] = []
    while wanted := orders(study, results):
        made.append(wanted[0])
        assert len(made) < 1000
        results[wanted[0].trial] = bounded(answer(wanted[0].trial), wanted[0].bound)
    return results, made


def test_first_order_is_the_first_rate_at_one_worker() -> None:
    assert orders(STUDY, {}) == [Order(Trial("bsp", 1, False, -3, 1))]


@pytest.mark.parametrize("scheme", ["bsp", "asp", "wasp"])
@pytest.mark.parametrize("straggling", [False, True])
def test_every_cell_finds_its_best_rate(scheme: str, straggling: bool) -> None:
    results, _ = complete(STUDY)
    for workers in STUDY.workers:
        cell = Cell(scheme, workers, straggling)
        expected = best_power(cell.trial(0, 1))
        assert chosen(STUDY, results, cell) == expected
        for seed in STUDY.seeds:
            assert results[cell.trial(expected, seed)].seconds is not None


def test_one_worker_is_run_once_for_all_schemes() -> None:
    _, made = complete(STUDY)
    assert {order.trial.scheme for order in made if order.trial.workers == 1} == {"bsp"}


def test_bsp_with_a_straggler_needs_no_search() -> None:
    _, made = complete(STUDY)
    slow = [o.trial for o in made if o.trial.scheme == "bsp" and o.trial.straggling]
    assert {(trial.workers, trial.power) for trial in slow} == {(1, -3), (2, -3), (4, -3)}


def test_a_search_gives_up_on_what_is_slower() -> None:
    _, made = complete(STUDY)
    at_one = [order for order in made if order.trial.workers == 1 and not order.trial.straggling]
    assert at_one[0].bound is None
    assert [(o.trial.power, o.bound) for o in at_one[1:3]] == [(-4, 10.1), (-2, 10.1)]


def test_a_search_starts_where_half_as_many_workers_ended() -> None:
    _, made = complete(STUDY)
    starts: dict[str, Order] = {}
    for order in made:
        if order.trial.workers == 4 and not order.trial.straggling:
            starts.setdefault(order.trial.scheme, order)
    assert {name: order.trial.power for name, order in starts.items()} == {
        "bsp": -3,
        "asp": -5,
        "wasp": -3,
    }
    assert starts["bsp"].bound == pytest.approx(1.25 * 10.1 / 2)


def test_more_workers_that_are_much_slower() -> None:
    """The first run gives up; the best rate is then that of the best accuracy, and is run to its end."""

    def worse(trial: Trial) -> Outcome:
        outcome = formula(trial)
        off = abs(trial.power - best_power(trial))
        return replace(outcome, seconds=10.0 * trial.workers + off, accuracy=0.98 - 0.01 * off)

    results, _ = complete(STUDY, worse)
    cell = Cell("bsp", 4, False)
    assert chosen(STUDY, results, cell) == -3
    assert [results[cell.trial(-3, seed)].seconds for seed in STUDY.seeds] == [40.0] * 3


def test_no_run_is_made_twice_for_the_same_reason() -> None:
    _, made = complete(STUDY)
    assert len(set(made)) == len(made)


def test_lost_runs_lead_to_lower_rates() -> None:
    study = replace(STUDY, first=2)

    def steep(trial: Trial) -> Outcome:
        return LOST if trial.power > best_power(trial) else formula(trial)

    results, made = complete(study, steep)
    assert chosen(study, results, Cell("bsp", 1, False)) == -3
    assert max(order.trial.power for order in made) == 2


def test_a_rate_at_which_a_seed_fails_is_halved() -> None:
    def fragile(trial: Trial) -> Outcome:
        fails = (trial.scheme, trial.power, trial.seed) == ("wasp", -3, 2)
        return LOST if fails else formula(trial)

    results, _ = complete(STUDY, fragile)
    cell = Cell("wasp", 4, False)
    assert chosen(STUDY, results, cell) == -4
    # Seed 1 had given up there, being slower; as one of the three it is run to its end.
    assert results[cell.trial(-4, 1)].seconds is not None


def test_nothing_reaches_the_target() -> None:
    results, made = complete(
        STUDY, lambda trial: replace(GOOD, seconds=None, accuracy=0.9 - 0.01 * abs(trial.power + 4))
    )
    assert chosen(STUDY, results, Cell("asp", 4, True)) is not None
    assert len(made) < 200


def test_the_grid_ends() -> None:
    study = replace(STUDY, lowest=-5)
    results, _ = complete(study, lambda trial: replace(GOOD, seconds=20.0 + trial.power))
    assert chosen(study, results, Cell("asp", 4, False)) == -5


def test_rate_where_asp_diverges() -> None:
    results, made = complete(STUDY)
    # wasp's best is 2^-3 and asp is lost from 2^-3 on with 4 workers (its best is 2^-5).
    assert rate_where_asp_diverges(STUDY, results) == -3
    asked = [o for o in made if o.trial == Trial("asp", 4, False, -3, 3)]
    assert [order.bound for order in asked] == [pytest.approx(1.5 * (10 + 0.3) / 4)]


def test_no_rate_where_asp_diverges() -> None:
    results, _ = complete(STUDY, lambda trial: replace(GOOD, seconds=20.0 - trial.power))
    assert rate_where_asp_diverges(STUDY, results) is None


def test_an_interrupted_study_makes_the_other_runs_only() -> None:
    results, made = complete(STUDY)
    half = {order.trial: results[order.trial] for order in made[: len(made) // 2]}
    wanted = orders(STUDY, half)
    assert wanted
    assert not {order.trial for order in wanted if results[order.trial].bound is None} & half.keys()
