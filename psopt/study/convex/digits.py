"""The whole logistic study: optima, the runs that are missing, and the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from psopt.record import write_atomic
from psopt.study.book import Book
from psopt.study.convex.logistic import (
    Optimum,
    Outcome,
    Setting,
    Solve,
    Trial,
    digits,
    minimum,
    run_trial,
)

CREWS = ((4, False), (16, False), (2, True))
"""Workers, and whether they are real ranks."""


@dataclass(frozen=True)
class Penalty:
    """What an optimum belongs to."""

    l2: float


@dataclass(frozen=True)
class Study:
    """What is to be found out.

    Attributes:
        setting: what all runs share.
        penalties: values of l2.
        ways: values of mu, in units of l2; whether with the safeguard, and with conjugate directions.
        crews: workers, and whether they are real ranks.
    """

    setting: Setting
    penalties: tuple[float, ...] = (1e-3, 3e-4, 1e-4)
    ways: tuple[tuple[float, bool, bool], ...] = (
        (0, False, False),
        (1, False, False),
        (3, False, False),
        (0, True, False),
        (0.5, True, False),
        (0, True, True),
        (0.5, True, True),
    )
    crews: tuple[tuple[int, bool], ...] = CREWS


def trials(study: Study) -> list[Trial]:
    """All runs."""
    return [
        Trial(l2, workers, mpi, *way)
        for l2 in study.penalties
        for workers, mpi in study.crews
        for way in study.ways
    ]


def make(
    study: Study, mnist: Path, out: Path, solve: Solve, say: Callable[[str], None] = print
) -> str:
    """Make all runs that ``out`` lacks, one after the other; the table.

    Args:
        study: what is to be found out.
        mnist: HDF5 file.
        out: directory of ``results.jsonl``, ``optima.jsonl`` and ``logistic.md``; made when missing.
        solve: finds the optima.
        say: is told of every result.
    """
    out.mkdir(parents=True, exist_ok=True)
    data = digits(mnist, study.setting, out / "digits.h5")
    optima = Book(out / "optima.jsonl", study.setting, Penalty, Optimum)
    book = Book(out / "results.jsonl", study.setting, Trial, Outcome)
    try:
        for trial in trials(study):
            penalty = Penalty(trial.l2)
            if penalty not in optima.results:
                shards = sorted({workers for workers, _ in study.crews})
                optima.add(penalty, minimum(study.setting, trial.l2, data, solve, shards))
                say(f"l2 = {trial.l2:g}: {optima.results[penalty]}")
            if trial not in book.results:
                book.add(trial, run_trial(study.setting, trial, data, optima.results[penalty]))
                say(f"{trial}: {book.results[trial]}")
    finally:
        optima.close()
        book.close()
    text = page(study, optima.results, book.results)
    write_atomic(out / "logistic.md", text)
    return text


def page(study: Study, optima: Mapping[Penalty, Optimum], results: Mapping[Trial, Outcome]) -> str:
    """The rounds of every run, with its gradient passes; the optima, and the fewest rounds near them."""
    heads = [_head(*way) for way in study.ways]
    lines = [["l2", "workers", *heads], ["---:"] * (2 + len(heads))]
    for l2 in study.penalties:
        for workers, mpi in study.crews:
            row = [_text(study, results.get(Trial(l2, workers, mpi, *way))) for way in study.ways]
            lines.append([f"{l2:g}", f"{workers} {'MPI' if mpi else 'virtual'}", *row])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    found = "\n".join(
        f"- l2 = {l2:g}: F* = {optima[Penalty(l2)].value:.12g}, |grad F| = "
        f"{optima[Penalty(l2)].gradient_norm:.0e}"
        for l2 in study.penalties
    )
    shards = sorted({workers for workers, _ in study.crews})
    head = ["l2", *(f"{count} shards" for count in shards)]
    limits = [head, ["---:"] * len(head)]
    for l2 in study.penalties:
        known = [optima[Penalty(l2)].limit(count) for count in shards]
        texts = [f"{found.alone} / {found.together}" if found else "-" for found in known]
        limits.append([f"{l2:g}", *texts])
    bounds = "\n".join(f"| {' | '.join(line)} |" for line in limits)
    return f"{table}\n\n{found}\n\n{bounds}\n"


def _head(mu: float, safeguard: bool, conjugate: bool) -> str:
    search = ", conjugate" if conjugate else ", safeguard" if safeguard else ""
    return (f"mu = {mu:g} l2" if mu else "mu = 0") + search


def _text(study: Study, outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    if outcome.end == "objective":
        return f"{outcome.rounds} ({outcome.passes:.0f})"
    if outcome.end == "steps":
        return f">{study.setting.rounds} (gap {outcome.gap:.0e})"
    return "diverges" if outcome.end == "diverged" else f"{outcome.end} (gap {outcome.gap:.0e})"
