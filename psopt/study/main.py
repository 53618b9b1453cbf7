"""The whole study: the runs, what a simulated gradient costs, the page and the plot."""

from __future__ import annotations

from pathlib import Path

from psopt.record import write_atomic
from psopt.study.cost import simulation_cost
from psopt.study.ledger import Ledger, complete, processes
from psopt.study.speedup import Study
from psopt.study.table import draw, page
from psopt.study.trial import Setting

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
QUICK = Study(
    Setting("sample", "softmax", 16, target=0.8, cap=300, test_rows=200, every=8),
    workers=(1, 4),
    seeds=(1, 2),
    lowest=-6,
    highest=-1,
    duel=4,
)
"""A study of seconds, of a model without hidden layers."""


def make(study: Study, out: Path, jobs: int) -> str:
    """Make all runs that ``out`` lacks, write page and plot; the page.

    Args:
        study: what is to be found out.
        out: directory of ``results.jsonl``, ``speedup.md``, ``speedup.png``; made when missing.
        jobs: runs at a time.
    """
    out.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(out / "results.jsonl", study.setting)
    try:
        with processes(jobs) as pool:
            complete(study, ledger, pool, jobs)
            most = max(study.workers)
            cost = pool.submit(simulation_cost, study.setting, most).result()
    finally:
        ledger.close()
    text = page(study, ledger.results) + cost_line(study, *cost)
    write_atomic(out / "speedup.md", text)
    draw(study, ledger.results, out / "speedup")
    return text


def insert(document: Path, text: str, plot: Path) -> None:
    """Put a study's page between the marks of ``document``, and its plot beside that.

    Raises:
        ValueError: the document lacks a mark.
    """
    old = document.read_text(encoding="utf-8")
    head, begin, rest = old.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{document}: lacks the line {BEGIN} or {END}")
    write_atomic(document, f"{head}{begin}\n{text}{end}{tail}")
    write_atomic(document.with_name(plot.name), plot.read_bytes())


def cost_line(study: Study, plain: float, simulated: float) -> str:
    """What a simulated gradient costs, from the seconds of either kind."""
    return (
        f"- a simulated gradient ({max(study.workers)} workers) costs {simulated / plain:.2f} times a "
        f"plain one ({1e3 * simulated:.2f} ms and {1e3 * plain:.2f} ms, batch {study.setting.batch})\n"
    )
