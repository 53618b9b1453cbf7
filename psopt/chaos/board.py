"""The scoreboard of trials, as text."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table

from psopt.chaos.real import Outcome
from psopt.chaos.simulated import Trial


def of_real(outcomes: Sequence[tuple[Outcome, str]]) -> Table:
    """A line for each kind of fault.

    Args:
        outcomes: with what is wrong with each; empty: nothing.
    """
    table = _table(
        "fault", "runs", "right", "hung", "wrong", "workers lost", "notice median/max s", "run s"
    )
    kinds = dict.fromkeys(outcome.fault for outcome, _ in outcomes)
    for kind in [*kinds, "all"]:
        mine = [(o, wrong) for o, wrong in outcomes if kind in ("all", o.fault)]
        notices = [o.notice for o, _ in mine if o.notice is not None]
        hung = sum(o.status is None for o, _ in mine)
        bad = sum(bool(wrong) for _, wrong in mine) - hung
        table.add_row(
            kind,
            str(len(mine)),
            str(len(mine) - bad - hung),
            str(hung),
            str(bad),
            str(sum(len(o.summary.get("lost_workers", ())) for o, _ in mine)),
            f"{statistics.median(notices):.2f} / {max(notices):.2f}" if notices else "-",
            f"{statistics.median([o.seconds for o, _ in mine]):.1f}" if mine else "-",
        )
    return table


def of_simulated(trials: Sequence[Trial]) -> Table:
    """What came of the courses, and what happened in them."""
    ends = Counter(trial.end for trial in trials)
    counts = {
        "courses": len(trials),
        **{end: ends[end] for end in ("completed", "all lost", "diverged", "broken")},
        "workers lost": sum(len(trial.lost) for trial in trials),
        "tickets issued again": sum(trial.returned for trial in trials),
        "late replies refused": sum(trial.late for trial in trials),
        "updates refused": sum(trial.refused for trial in trials),
    }
    table = _table("of the courses, and in them", "number")
    for what, count in counts.items():
        table.add_row(what, str(count))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE)
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right")
    return table
