"""The results of a study in a file of JSON lines, and the processes that add to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import torch

from psopt.crew.process import die_with_parent, keep_memory
from psopt.study.book import Book, OtherStudy
from psopt.study.speedup import Order, Study, orders
from psopt.study.trial import Outcome, Setting, Trial, run_trial

__all__ = ["Ledger", "OtherStudy", "complete", "describe", "processes"]


class Ledger(Book[Trial, Outcome]):
    """The results of the speed-up study."""

    def __init__(self, path: Path, setting: Setting) -> None:
        super().__init__(path, setting, Trial, Outcome)


def complete(
    study: Study,
    ledger: Ledger,
    pool: ProcessPoolExecutor,
    jobs: int,
    say: Callable[[str], None] = print,
) -> None:
    """Make all runs that the study lacks.

    Args:
        study: what is to be found out.
        ledger: results so far; grows.
        pool: processes that make the runs.
        jobs: runs at a time.
        say: is told of every result.
    """
    running: dict[Future[Outcome], Order] = {}
    while True:
        under_way = {order.trial for order in running.values()}
        for order in orders(study, ledger.results):
            if len(running) < jobs and order.trial not in under_way:
                future = pool.submit(run_trial, study.setting, order.trial, order.bound)
                running[future] = order
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            trial, outcome = running.pop(future).trial, future.result()
            ledger.add(trial, outcome)
            say(describe(trial, outcome))


def describe(trial: Trial, outcome: Outcome) -> str:
    """One line about a run."""
    end = "diverged" if outcome.diverged else f"accuracy {outcome.accuracy or 0:.3f}"
    time = "-" if outcome.seconds is None else f"{outcome.seconds:.1f} s"
    who = f"{trial.scheme:4} {trial.workers:2} {'straggler' if trial.straggling else 'equal':9}"
    return (
        f"{who} rate 2^{trial.power:<3} seed {trial.seed}: {time:>8}  {end}  "
        f"({outcome.gradients:,} gradients, {outcome.wall:.0f} s here)"
    )


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that compute with one thread each; what has not begun at the end is left."""
    pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=_set_up)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _set_up() -> None:
    die_with_parent()
    keep_memory()
    torch.set_num_threads(1)
