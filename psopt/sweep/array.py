"""The runs of a sweep as arrays of jobs of a batch system.

Runs that ask for the same make an array together, as many as the batch system allows in one. An array has a
folder of its own, `batch/NUMBER` in the sweep's directory, with its script and the list of its runs; a run's
directory says which task it is, in `batch.json`, once the batch system has taken the array.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt.config import JobConfig, SweepConfig
from psopt.launch.asking import NoNumber, SubmitError
from psopt.launch.placement import check_batch
from psopt.launch.queue import most_tasks
from psopt.launch.script import Array, Start, array_script
from psopt.launch.submit import Order, give
from psopt.record import Submission, SweepDirectory, forget_ended, write_atomic
from psopt.sweep.book import SweepError, Todo

_MODE = 0o755


@dataclass(frozen=True, slots=True)
class Batch:
    """An array of jobs that is to be submitted.

    Attributes:
        todo: its runs, by task.
        order: what its tasks ask for.
        array: the array.
        text: its script.
    """

    todo: tuple[Todo, ...]
    order: Order
    array: Array
    text: str

    @property
    def script(self) -> Path:
        """Where the script is, once it is written."""
        return self.array.folder / "job.sh"

    @property
    def runs(self) -> str:
        """The list of runs, by their directories below `runs`."""
        return "".join(f"{each.path.parent.name}/{each.path.name}\n" for each in self.todo)


def batches(
    todo: Sequence[Todo],
    sweep: SweepConfig,
    directory: SweepDirectory,
    most: int | None,
) -> list[Batch]:
    """The arrays that make these runs.

    Args:
        todo: the runs.
        sweep: the sweep.
        directory: of the sweep.
        most: runs of an array at a time; None: as many as there is room for.

    Raises:
        SweepError: what some runs ask for cannot be submitted.
        SubmitError: there is no batch system.
        ScriptError: a path holds what no script can.
    """
    alike: dict[str, tuple[Order, list[Todo]]] = {}
    wrong: dict[str, str] = {}
    root = directory.path.absolute()
    for each in todo:
        made = Order.of(_asked(each.run.config, sweep))
        wrong.update(dict.fromkeys(_faults(made.config), each.run.id))
        start = Start(made.python, made.folder, root, made.mpi)
        key = array_script(made.config, made.site, start, Array(root, 1, most, sweep.simulate))
        alike.setdefault(key, (made, []))[1].append(each)
    if wrong:
        said = [f"{directory.path}: {text} (run {run})" for text, run in wrong.items()]
        raise SweepError("\n".join(said))
    found: list[Batch] = []
    first = _free_number(root)
    for made, runs in alike.values():
        size = most_tasks(made.site.commands)
        for some in (tuple(runs[place : place + size]) for place in range(0, len(runs), size)):
            folder = root / "batch" / f"{first + len(found):04}"
            array = Array(folder, len(some), most, sweep.simulate)
            start = Start(made.python, made.folder, root, made.mpi)
            text = array_script(made.config, made.site, start, array)
            found.append(Batch(some, made, array, text))
    return found


def submit(batches: Sequence[Batch], tell: Callable[[Batch, Submission], None]) -> None:
    """Submit arrays; with a bound on the runs at a time one after the other.

    Args:
        batches: the arrays.
        tell: hears of each that was taken.

    Raises:
        SubmitError: one was not taken; those before it were, and were told of.
        OSError: a file cannot be written.
    """
    before: str | None = None
    for batch in batches:
        chained = before is not None and batch.array.most is not None
        submission = _submit(batch, [f"--dependency=afterany:{before}"] if chained else [])
        tell(batch, submission)
        before = submission.job


def _submit(batch: Batch, options: Sequence[str]) -> Submission:
    """One array; its task numbers are recorded with its runs."""
    batch.array.folder.mkdir(parents=True)
    try:
        write_atomic(batch.array.folder / "runs", batch.runs)
        write_atomic(batch.script, batch.text)
        batch.script.chmod(_MODE)
        submission, _ = give(batch.order, batch.script, *options)
    except (OSError, SubmitError) as error:
        if not isinstance(error, NoNumber):
            shutil.rmtree(batch.array.folder, ignore_errors=True)
        raise
    for task, each in enumerate(batch.todo):
        forget_ended(each.path)
        submission.task(task).write(each.path)
    return submission


def _asked(config: JobConfig[Any], sweep: SweepConfig) -> JobConfig[Any]:
    """What a run asks the batch system for, in the sweep's name."""
    batch, cluster = config.batch, config.cluster
    if sweep.simulate:
        alone = {
            "nodes": None,
            "tasks_per_node": None,
            "gpus_per_node": None,
            "heterogeneous": False,
        }
        batch = batch.model_copy(update=alone)
    else:
        assert sweep.ranks is not None
        cluster = cluster.model_copy(update={"workers": sweep.ranks - 1})
    return config.model_copy(update={"name": sweep.name, "batch": batch, "cluster": cluster})


def _faults(config: JobConfig[Any]) -> Iterator[str]:
    for problem in check_batch(config):
        yield f"{'.'.join(map(str, problem.path))}: {problem.message}"
    if config.batch.heterogeneous:
        yield "batch.heterogeneous: Slurm has no arrays of such jobs; set it to false"


def _free_number(root: Path) -> int:
    """Of the next array's folder."""
    there = [folder.name for folder in (root / "batch").glob("*") if folder.name.isdecimal()]
    return max(map(int, there), default=0) + 1
