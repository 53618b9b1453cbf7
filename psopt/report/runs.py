"""What a report needs of a run, read from its directory."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from psopt.config import one_line, read_texts
from psopt.record import RunDirectory, read_metrics, read_timeline
from psopt.report.entries import check_summary, checked_rows
from psopt.report.lanes import lanes, waiting_share

NO_SUMMARY = "no summary"


class ReportError(ValueError):
    """The report cannot be made; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run, whole or not.

    Attributes:
        path: its directory.
        label: a name that no other run of the report has.
        config: `config.yaml` as nested dicts of text.
        summary: `summary.json`, empty when the run has not ended.
        steps: the step rows of `metrics.jsonl`.
        evaluations: the evaluation rows of it.
        events: the events of `timeline.json`.
        starts: the start rows of `metrics.jsonl`, of before the first step.
    """

    path: Path
    label: str
    config: dict[str, Any]
    summary: dict[str, Any]
    steps: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    events: list[dict[str, Any]]
    starts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> str:
        """completed, diverged, failed, interrupted, or "no summary"."""
        return str(self.summary.get("status", NO_SUMMARY))

    @property
    def scheme(self) -> str | None:
        """The scheme's name."""
        found = self.summary.get("scheme") or _inner(self.config, "scheme", "name")
        return None if found is None else one_line(str(found))

    @property
    def workers(self) -> int | None:
        """How many workers; of a run without summary, how many of them appear in its timeline."""
        found = self.summary.get("workers")
        ranks = {event["tid"] for event in self.events if event.get("ph") == "X"} - {0}
        return found if isinstance(found, int) else len(ranks) or None

    @property
    def target(self) -> float | None:
        """The test accuracy in (0, 1] at which the run was to stop."""
        text = _inner(self.config, "stop", "test_accuracy")
        try:
            accuracy = float(text)
        except (TypeError, ValueError):
            return None
        return accuracy if 0 < accuracy <= 1 else None

    def last(self, name: str) -> float | None:
        """A number of the summary, or the one of the last row that has it; None if unknown."""
        for row in (self.summary, *reversed(self.evaluations[-1:] + self.steps[-1:])):
            value = row.get(name)
            if isinstance(value, int | float):
                return float(value)
        return None

    @property
    def step_seconds(self) -> float:
        """Median seconds between two steps; 0 where there are none."""
        known = [
            (float(row["step"]), float(row["seconds"]))
            for row in self.steps
            if _is_finite(row.get("step")) and _is_finite(row.get("seconds"))
        ]
        gaps = [(s - r) / (n - m) for (m, r), (n, s) in pairwise(known) if n > m]
        return max(0.0, statistics.median(gaps)) if gaps else 0.0

    @property
    def objectives(self) -> list[dict[str, Any]]:
        """The rows of start and steps that have a finite objective, in order."""
        return [row for row in (*self.starts, *self.steps) if _is_finite(row.get("objective"))]

    @property
    def staleness(self) -> dict[int, int]:
        """How many updates had which staleness, in versions."""
        found = self.summary.get("staleness_histogram")
        if isinstance(found, dict) and found:
            counts = {int(key): int(value) for key, value in found.items()}
        else:
            rows = (row.get("staleness") for row in self.steps)
            counts = Counter(int(value) for value in rows if isinstance(value, int | float))
        return {value: count for value, count in sorted(counts.items()) if count}

    @property
    def waiting(self) -> float | None:
        """The workers' share of time spent waiting, in [0, 1], over all workers.

        It comes from the summary, and for a run without one from its timeline.
        """
        rows = self.summary.get("worker_seconds") or []
        total = {
            key: math.fsum(row.get(key) or 0.0 for row in rows)
            for key in ("compute", "wait", "communication")
        }
        spent = math.fsum(total.values())
        if spent > 0:
            return total["wait"] / spent
        return waiting_share([lane for lane in lanes(self.events) if lane.rank != 0])


def read_runs(directories: Sequence[Path]) -> list[Run]:
    """The runs of several directories, in the order given, each once.

    Raises:
        ReportError: there is none, or some cannot be read; it names each of them.
    """
    runs, problems = read_each(directories)
    if problems:
        raise ReportError("\n".join(problems))
    return runs


def read_each(directories: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs that can be read, in the order given, each once; and what is wrong with the others.

    Raises:
        ReportError: there is no directory.
    """
    if not directories:
        raise ReportError("no run directories; name at least one, such as runs/*")
    unique = list({path.resolve(): path for path in map(Path, directories)}.values())
    runs, problems = [], []
    for path in unique:
        try:
            runs.append(_read(path))
        except (OSError, ValueError) as error:
            problems.append(f"{error}{_hint(path)}")
    return _label(runs), problems


def _read(path: Path) -> Run:
    directory = RunDirectory.open(path)
    config = read_texts(directory.config_path)
    rows = read_metrics(directory.metrics_path) if directory.metrics_path.exists() else []
    rows = checked_rows(directory.metrics_path, rows)
    return Run(
        path=path,
        label=one_line(str(config.get("name") or path.resolve().name)),
        config=config,
        summary=check_summary(directory.summary_path, directory.read_summary() or {}),
        steps=[row for row in rows if row.get("kind") == "step"],
        evaluations=[row for row in rows if row.get("kind") == "evaluation"],
        events=read_timeline(directory.timeline_path) if directory.timeline_path.exists() else [],
        starts=[row for row in rows if row.get("kind") == "start"],
    )


def _label(runs: list[Run]) -> list[Run]:
    """Make the labels differ: by the job's name, then the directory's, then its whole path."""
    names = Counter(run.label for run in runs)
    directories = Counter((run.label, run.path.resolve().name) for run in runs)
    labelled = []
    for run in runs:
        name = run.path.resolve().name
        if names[run.label] == 1:
            label = run.label
        elif directories[run.label, name] == 1:
            label = name if run.label in name else f"{run.label} ({name})"
        else:
            label = f"{run.label} ({run.path})"
        labelled.append(replace(run, label=label))
    return labelled


def _hint(path: Path) -> str:
    """A way out when a directory of runs was named instead of a run."""
    inside = sorted(path.glob("*/config.yaml")) if path.is_dir() else []
    return f" (it holds {len(inside)} runs; name them: {path}/*)" if inside else ""


def _inner(config: dict[str, Any], section: str, key: str) -> Any:
    inner = config.get(section)
    return inner.get(key) if isinstance(inner, dict) else None


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
