"""A sweep in its directory: what is on record of its runs, and which of them a call is to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from psopt.config import dump_job, flow_text
from psopt.launch.queue import standings
from psopt.record import (
    NotASweep,
    Standing,
    State,
    SweepDirectory,
    SweepEntry,
    SweepRecord,
)
from psopt.sweep.plan import Plan, PlannedRun


class SweepError(ValueError):
    """The sweep cannot go on in its directory; the text says why and the remedy."""


class Only(StrEnum):
    """Which runs a call runs."""

    MISSING = "missing"
    FAILED = "failed"
    ALL = "all"


_STATES = {
    Only.MISSING: {State.MISSING},
    Only.FAILED: {State.FAILED},
    Only.ALL: {State.MISSING, State.FAILED, State.UNKNOWN},
}


@dataclass(frozen=True, slots=True)
class Todo:
    """A run that is to be run.

    Attributes:
        run: what it is.
        path: its directory.
        why: how it stands now.
    """

    run: PlannedRun
    path: Path
    why: Standing

    @property
    def goes_on(self) -> bool:
        """Whether there is a run in the directory, which is continued."""
        return (self.path / "config.yaml").is_file()

    def arguments(self, ranks: int | None) -> list[str]:
        """Of ``psopt``, for this run; whoever starts it may write its output beside it.

        Args:
            ranks: MPI ranks to start; None: it is on the virtual cluster.
        """
        path = str(self.path)
        words = ["--resume", path] if self.goes_on else [str(self.path / "job.yaml"), "--out", path]
        return ["run", *words, *(["--simulate"] if ranks is None else ["-n", str(ranks)])]


@dataclass(frozen=True, slots=True)
class Book:
    """A plan and its directory.

    Attributes:
        plan: of the sweep.
        directory: where it is kept.
    """

    plan: Plan
    directory: SweepDirectory

    def check(self) -> None:
        """See that what is in the directory is of this sweep.

        Raises:
            SweepError: runs have begun with a base that was another, so they cannot be compared with
                new ones; or there is something else.
        """
        path = self.directory.path
        if not self.directory.is_one():
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise SweepError(
                    f"{path}: it is no sweep's directory, and not empty; name another with --out"
                )
            return
        try:
            before = self.directory.read()
        except NotASweep:
            return  # it is written anew
        begun = any(
            (self.directory.run_path(run.id) / "config.yaml").is_file() for run in before.runs
        )
        if before.base != self.plan.base and begun:
            changed = ", ".join(_changed(before.base, self.plan.base))
            raise SweepError(
                f"{path}: its runs are of another base job ({changed}); name another directory with "
                "--out, put the base back, or say in `fixed` what is to differ"
            )

    def standings(self) -> list[tuple[PlannedRun, Standing]]:
        """How each run stands, in the order of the plan."""
        paths = [self.directory.run_path(run.id) for run in self.plan.runs]
        return [*zip(self.plan.runs, standings(paths), strict=True)]

    def chosen(
        self, standings: Collection[tuple[PlannedRun, Standing]], only: Only, limit: int | None
    ) -> list[Todo]:
        """What a call is to run: the first ``limit`` of those in the states that ``only`` names."""
        todo = [
            Todo(run, self.directory.run_path(run.id), standing)
            for run, standing in standings
            if standing.state in _STATES[only]
        ]
        return todo[:limit]

    def prepare(self, todo: Collection[Todo]) -> None:
        """Put the plan on record, and make the directories of these runs.

        Raises:
            OSError: they cannot be written.
        """
        entries = tuple(SweepEntry(run.id, run.assignment) for run in self.plan.runs)
        config = self.plan.config
        self.directory.write(SweepRecord(config.name, tuple(config.swept), entries, self.plan.base))
        for each in todo:
            self.directory.prepare(each.run.id, dump_job(each.run.config), each.run.assignment)


def counted(states: Collection[State]) -> str:
    """`3 done, 1 failed, 0 running, 2 missing`, and the other states where there are any."""
    counts = Counter(states)
    always = (State.DONE, State.FAILED, State.RUNNING, State.MISSING)
    shown = [state for state in State if state in always or counts[state]]
    return ", ".join(f"{counts[state]} {state}" for state in shown)


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The sections that differ, in a few words."""
    keys = [*before, *(key for key in now if key not in before)]
    return [
        f"{key} is {_said(now, key)}, and was {_said(before, key)}"
        for key in keys
        if before.get(key) != now.get(key)
    ]


def _said(values: dict[str, Any], key: str) -> str:
    return flow_text(values[key]) if key in values else "not there"
