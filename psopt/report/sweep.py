"""What came of a sweep: its runs, in groups of those that differ in nothing but a seed."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt.config import one_line, short_text, value_json
from psopt.record import (
    MetricsError,
    NotASweep,
    RunDirectory,
    State,
    SweepDirectory,
    SweepEntry,
    read_metrics,
    standing_of,
)
from psopt.report.entries import EntryError, check_summary, checked_rows
from psopt.report.runs import ReportError

SEED = "seed"


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of a run's summary.

    Attributes:
        name: its key there.
        title: of its column.
        form: how it is written.
        factor: by which it is multiplied first.
    """

    name: str
    title: str
    form: str
    factor: float = 1.0


MEASURES = (
    Measure("test_accuracy", "test acc. %", ".2f", 100.0),
    Measure("test_loss", "test loss", ".4g"),
    Measure("objective", "objective", ".6g"),
    Measure("seconds", "seconds", ".4g"),
    Measure("seconds_to_target", "s to target", ".4g"),
    Measure("samples", "samples", ".0f"),
)


@dataclass(frozen=True, slots=True)
class SweptRun:
    """One run of a sweep, whole or not.

    Attributes:
        entry: its id and what it sets.
        path: its directory.
        state: how it stands.
        reason: why.
        summary: its outcome, empty without one.
        evaluations: the evaluation rows of a run that is done.
    """

    entry: SweepEntry
    path: Path
    state: State
    reason: str
    summary: dict[str, Any]
    evaluations: list[dict[str, Any]]

    def value(self, measure: Measure) -> float | None:
        """The measure of a run that is done, in the column's unit."""
        found = self.summary.get(measure.name) if self.state is State.DONE else None
        number = isinstance(found, int | float) and not isinstance(found, bool)
        return measure.factor * float(found) if number and found is not None else None


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation over the runs that have a value.

    Attributes:
        count: how many they are.
        mean: of the values.
        deviation: None of fewer than two.
    """

    count: int
    mean: float
    deviation: float | None


@dataclass(frozen=True, slots=True)
class Group:
    """The runs that have some values in common.

    Attributes:
        values: by the keys of the groups.
        runs: in the order of the plan.
    """

    values: dict[str, Any]
    runs: tuple[SweptRun, ...]

    @property
    def label(self) -> str:
        """The values in a line."""
        return (
            ", ".join(f"{one_line(key)}={short_text(value)}" for key, value in self.values.items())
            or "all"
        )

    def count(self, *states: State) -> int:
        """How many runs are in these states."""
        return sum(run.state in states for run in self.runs)

    def spread(self, measure: Measure) -> Spread | None:
        """Of the runs that are done and have the measure; None where there is none."""
        found = [value for run in self.runs if (value := run.value(measure)) is not None]
        if not found:
            return None
        deviation = statistics.stdev(found) if len(found) > 1 else None
        return Spread(len(found), math.fsum(found) / len(found), deviation)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as it is on disk.

    Attributes:
        name: of the sweep.
        path: its directory.
        keys: dotted, those that are swept.
        runs: in the order of the plan.
    """

    name: str
    path: Path
    keys: tuple[str, ...]
    runs: tuple[SweptRun, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many runs are done, failed, running, missing and unknown; no queue is asked."""
        states = Counter(run.state for run in self.runs)
        queues = (State.BLOCKED, State.QUEUED)
        return {str(state): states[state] for state in State if state not in queues}

    @property
    def tally(self) -> str:
        """The same in a line, which every report has."""
        counts = self.counts
        shown = [
            f"{counts[state]} {state}"
            for state in map(State, counts)
            if counts[state] or state in (State.DONE, State.FAILED, State.MISSING)
        ]
        return f"{len(self.runs)} runs: {', '.join(shown)}"

    @property
    def measures(self) -> list[Measure]:
        """Those that some run has."""
        return [m for m in MEASURES if any(run.value(m) is not None for run in self.runs)]

    @property
    def best(self) -> SweptRun | None:
        """The run of highest test accuracy; of lowest test loss or objective, where that is all."""
        for measure in MEASURES[:3]:
            sign = -1 if measure.name == "test_accuracy" else 1
            found = [
                (sign * v, i)
                for i, r in enumerate(self.runs)
                if (v := r.value(measure)) is not None
            ]
            if found:
                return self.runs[min(found)[1]]
        return None

    def groups(self, keys: Sequence[str] | None = None) -> list[Group]:
        """Runs that agree in these keys, in the order of the plan; None: all keys but the seed.

        Raises:
            ReportError: a key is not swept.
        """
        chosen = [key for key in self.keys if key != SEED] if keys is None else list(keys)
        if strangers := [key for key in chosen if key not in self.keys]:
            raise ReportError(
                f"--group-by: {strangers[0]!r} is not swept here; those are {', '.join(self.keys)}"
            )
        found: dict[str, list[SweptRun]] = {}
        for run in self.runs:
            values = {key: run.entry.assignment.get(key) for key in chosen}
            found.setdefault(value_json(values), []).append(run)
        return [
            Group({key: runs[0].entry.assignment.get(key) for key in chosen}, tuple(runs))
            for runs in found.values()
        ]


def read_sweep(path: Path) -> Sweep:
    """Read the directory of a sweep; runs that are damaged count as unknown, with the reason.

    Raises:
        ReportError: it is none.
    """
    directory = SweepDirectory(path)
    try:
        record = directory.read()
    except NotASweep as error:
        raise ReportError(str(error)) from error
    runs = tuple(_read(entry, directory.run_path(entry.id)) for entry in record.runs)
    return Sweep(one_line(record.name), path, record.keys, runs)


def _read(entry: SweepEntry, path: Path) -> SweptRun:
    standing = standing_of(path)
    if standing.state is not State.DONE:
        return SweptRun(entry, path, standing.state, standing.reason, standing.summary, [])
    try:
        run = RunDirectory.open(path)
        summary = check_summary(run.summary_path, standing.summary)
        rows = checked_rows(run.metrics_path, read_metrics(run.metrics_path))
    except (OSError, EntryError, MetricsError) as error:
        return SweptRun(entry, path, State.UNKNOWN, str(error), {}, [])
    evaluations = [row for row in rows if row.get("kind") == "evaluation"]
    return SweptRun(entry, path, State.DONE, "", summary, evaluations)
