"""The whole ridge study: the runs that are missing, and the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from psopt.record import write_atomic
from psopt.study.book import Book
from psopt.study.convex.plan import Study, next_trial
from psopt.study.convex.ridge import Outcome, Trial, run_trial
from psopt.study.convex.table import page, values


def make(study: Study, out: Path, say: Callable[[str], None] = print) -> str:
    """Make all runs that ``out`` lacks, one after the other; the table.

    Args:
        study: what is to be found out.
        out: directory of ``results.jsonl``, ``ridge.md``, ``ridge.csv`` and the data sets; made when
            missing. The tables are written anew after every run.
        say: is told of every result.
    """
    out.mkdir(parents=True, exist_ok=True)
    book = Book(out / "results.jsonl", study.setting, Trial, Outcome)
    try:
        while (trial := next_trial(study, book.results)) is not None:
            outcome = run_trial(study.setting, trial, out / "data")
            book.add(trial, outcome)
            say(describe(trial, outcome))
            _write(study, book, out)
    finally:
        book.close()
    _write(study, book, out)
    return page(study, book.results)


def describe(trial: Trial, outcome: Outcome) -> str:
    """One line about a run."""
    return (
        f"seed {trial.seed}, N = {trial.samples:,}, m = {trial.shards}, {trial.method}: {outcome.end} "
        f"after {outcome.rounds} rounds, gap {outcome.gap:.1e} ({outcome.wall:.0f} s here)"
    )


def _write(study: Study, book: Book[Trial, Outcome], out: Path) -> None:
    write_atomic(out / "ridge.md", page(study, book.results))
    write_atomic(out / "ridge.csv", values(study, book.results))
