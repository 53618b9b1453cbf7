"""One directory a sweep: its plan, and below it the directories of its runs, in 256 shards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt.reading import parse_json, read_within
from psopt.record.files import make_directory, to_json, write_atomic

_MOST_PLAN = 1 << 27  # bytes of the plan of ten thousand runs with long values
_ID = re.compile(r"[0-9a-f]{12,64}")


class NotASweep(FileNotFoundError):  # noqa: N818 - reads as what happened
    """The path is not the directory of a sweep, or its plan cannot be read."""


@dataclass(frozen=True, slots=True)
class SweepEntry:
    """One run of a sweep.

    Attributes:
        id: hexadecimal; the hash of what it sets.
        assignment: values by dotted keys, of those that are swept.
    """

    id: str
    assignment: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """The plan of a sweep as it is on record.

    Attributes:
        name: of the sweep.
        keys: dotted, those that are swept; `seed` last where the sweep has seeds.
        runs: in the order of the plan.
        base: the values of the base job as it was written.
    """

    name: str
    keys: tuple[str, ...]
    runs: tuple[SweepEntry, ...]
    base: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SweepDirectory:
    """The files of one sweep.

    Attributes:
        path: the directory.
    """

    path: Path

    @property
    def plan_path(self) -> Path:
        """The plan: which runs there are."""
        return self.path / "sweep.json"

    def run_path(self, run: str) -> Path:
        """The directory of the run of that id."""
        return self.path / "runs" / run[:2] / run

    def is_one(self) -> bool:
        """Whether there is a plan here."""
        return self.plan_path.is_file()

    def write(self, record: SweepRecord) -> None:
        """Put the plan on record; the directory is made where it is missing.

        Raises:
            OSError: it cannot be written.
        """
        make_directory(self.path)
        runs = [{"id": entry.id, "assignment": entry.assignment} for entry in record.runs]
        plan = {"name": record.name, "keys": record.keys, "base": record.base, "runs": runs}
        write_atomic(self.plan_path, to_json(plan) + "\n")

    def read(self) -> SweepRecord:
        """The plan on record.

        Raises:
            NotASweep: there is none, or it cannot be read.
        """
        if not self.path.exists():
            raise NotASweep(f"{self.path}: no such directory; name the directory of a sweep")
        try:
            plan = parse_json(read_within(self.plan_path, _MOST_PLAN, follow=False))
            return _record(plan)
        except FileNotFoundError as error:
            raise NotASweep(
                f"{self.path}: not the directory of a sweep, sweep.json is missing"
            ) from error
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise NotASweep(
                f"{self.plan_path}: cannot be read ({error}); `psopt sweep` writes it anew"
            ) from error

    def prepare(self, run: str, job: str, assignment: Mapping[str, Any]) -> Path:
        """Make the directory of a run, with its job and what it sets.

        Args:
            run: its id.
            job: the resolved job, as the text of a job file.
            assignment: values by dotted keys.

        Raises:
            OSError: it cannot be written.
        """
        path = self.run_path(run)
        make_directory(path)
        write_atomic(path / "job.yaml", job)
        entry = {"id": run, "assignment": dict(assignment)}
        write_atomic(path / "assignment.json", to_json(entry, indent=2) + "\n")
        return path


def _record(plan: Any) -> SweepRecord:
    """The plan in its types; an id that is none would lead out of the directory."""
    entries = [
        SweepEntry(_id(entry["id"]), _mapping(entry["assignment"])) for entry in plan["runs"]
    ]
    keys: Sequence[Any] = plan["keys"]
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("keys: not a list of texts")
    return SweepRecord(str(plan["name"]), tuple(keys), tuple(entries), _mapping(plan["base"]))


def _id(text: Any) -> str:
    if not isinstance(text, str) or not _ID.fullmatch(text):
        raise ValueError(f"{text!r:.60} is no id of a run")
    return text


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.60} is not a mapping")
    return value
