"""How runs stand, as a table, as JSON and as an exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt.config import assignment_text, one_line
from psopt.launch.queue import standings
from psopt.record import (
    BatchFiles,
    RunDirectory,
    Standing,
    State,
    SweepDirectory,
    SweepEntry,
    log_of,
)
from psopt.sweep.book import counted

_FIGURES = ("steps", "epochs", "seconds", "test_accuracy", "test_loss", "objective")


@dataclass(frozen=True, slots=True)
class Status:
    """What was found in a directory.

    Attributes:
        name: of the sweep, or the run's directory.
        path: the directory.
        runs: of a sweep, each with its directory and how it stands; or the one run.
        sweep: whether it is one.
    """

    name: str
    path: Path
    runs: list[tuple[SweepEntry, Path, Standing]]
    sweep: bool


def read_status(directory: Path) -> Status:
    """Look at the directory of a run or of a sweep.

    Raises:
        NotARun, NotASweep: it is neither.
    """
    place = SweepDirectory(directory)
    if place.is_one():
        record = place.read()
        paths = [place.run_path(entry.id) for entry in record.runs]
        runs = [*zip(record.runs, paths, standings(paths), strict=True)]
        return Status(record.name, directory, runs, sweep=True)
    # A sweep, or a submission, has made it, and the run may not be there.
    beforehand = (directory / "job.yaml", BatchFiles(directory).submission)
    if not any(path.is_file() for path in beforehand):
        RunDirectory.open(directory)
    entry = SweepEntry(directory.resolve().name, {})
    (standing,) = standings([directory])
    return Status(entry.id, directory, [(entry, directory, standing)], sweep=False)


def exit_status(states: Collection[State]) -> int:
    """0 all done, 1 some failed or blocked, else 3: some wait, run, have not begun or are unknown."""
    if {State.FAILED, State.BLOCKED} & set(states):
        return 1
    return 0 if set(states) <= {State.DONE} else 3


def status_text(found: Status) -> str:
    """A table for people; a failed run has its reason and its log on a line of its own."""
    rows = [_cells(entry, standing, found.sweep) for entry, _, standing in found.runs]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    lines = []
    for cells, (_, path, standing) in zip(rows, found.runs, strict=True):
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append("  ".join(padded).rstrip())
        if standing.state in (State.FAILED, State.BLOCKED):
            lines.append(f"    {one_line(standing.reason)}")
            lines.append(f"    log: {log_of(path)}")
    states = [standing.state for _, _, standing in found.runs]
    lines.append(f"{one_line(found.name)}: {counted(states)}" if found.sweep else "")
    return "\n".join(lines).rstrip()


def status_json(found: Status) -> dict[str, Any]:
    """The same for programs."""
    counts = Counter(standing.state for _, _, standing in found.runs)
    return {
        "name": found.name,
        "directory": str(found.path),
        "counts": {str(state): counts[state] for state in State},
        "runs": [
            {
                "id": entry.id,
                "assignment": entry.assignment,
                "directory": str(path),
                "state": str(standing.state),
                "reason": standing.reason,
                "log": str(log_of(path)),
                **{name: standing.summary.get(name) for name in _FIGURES},
            }
            for entry, path, standing in found.runs
        ],
    }


def line_of_end(run: str, assignment: Mapping[str, Any], standing: Standing, path: Path) -> str:
    """What is said of a run when it has ended."""
    text = f"{standing.state}  {run}  {assignment_text(assignment)}"
    if standing.state is State.DONE:
        return text + _figures(standing)
    return f"{text}: {one_line(standing.reason)}; log: {log_of(path)}"


def _cells(entry: SweepEntry, standing: Standing, sweep: bool) -> tuple[str, ...]:
    said = ""
    if standing.state is State.DONE:
        said = _figures(standing).strip(" ,")
    elif standing.state not in (State.FAILED, State.BLOCKED):
        said = one_line(standing.reason)
    assignment = (assignment_text(entry.assignment),) if sweep else ()
    return (str(standing.state), entry.id, *assignment, said)


def _figures(standing: Standing) -> str:
    accuracy, seconds = standing.summary.get("test_accuracy"), standing.summary.get("seconds")
    text = f", test accuracy {100 * accuracy:.2f} %" if isinstance(accuracy, int | float) else ""
    text += f", {seconds:.4g} s of training" if isinstance(seconds, int | float) else ""
    return f"{text}, ended by {one_line(standing.reason)}"
