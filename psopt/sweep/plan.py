"""The plan of a sweep: its runs, checked, each with an identity; how they are run is not its matter.

A run is known by what it sets, and not by its place in the file: the hash of its values. A file that
is ordered otherwise names the same runs, and one with a value more names these and new ones.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt import job
from psopt.config import (
    ConfigError,
    JobConfig,
    Located,
    MapNode,
    Override,
    Place,
    SweepConfig,
    assignment_text,
    flow_text,
    json_values,
    load_sweep,
    read_tree,
    value_json,
    value_of,
)
from psopt.schemes.base import Scheme
from psopt.sweep.expand import Setting, assignments, fixed_settings, is_excluded

_ID_DIGITS = 16
_NAME_LENGTH = 64


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a sweep.

    Attributes:
        id: hexadecimal; the hash of all values that the run sets, the fixed ones included.
        assignment: values by dotted keys, of those that are swept.
        config: the resolved job.
    """

    id: str
    assignment: dict[str, Any]
    config: JobConfig[Scheme]


@dataclass(frozen=True, slots=True)
class Plan:
    """A sweep that can be run.

    Attributes:
        config: the sweep file.
        runs: in the order of the file, each once.
        base: values of the base job as it is written, by which a change of it is noticed.
        repeated: how many assignments were those of an earlier run.
        idle: what in `exclude` leaves out no run.
    """

    config: SweepConfig
    runs: tuple[PlannedRun, ...]
    base: dict[str, Any]
    repeated: int
    idle: tuple[str, ...]


def plan(path: Path) -> Plan:
    """Read a sweep file and check every job that it stands for.

    Args:
        path: the sweep file. Its base is found from its directory.

    Raises:
        ConfigError: everything that is wrong with the file, the base, and each run; those of runs
            name the values of one that has it.
    """
    config, root = load_sweep(path)
    base_path = path.parent / config.base
    try:
        base, faults = read_tree(base_path)
    except ConfigError as error:
        raise ConfigError(_seen_from(root, error.problems, str(base_path))) from None
    if faults:
        raise ConfigError(faults)
    fixed = fixed_settings(root)
    runs: dict[str, PlannedRun] = {}
    used, repeated, wrong = [False] * len(config.exclude), 0, _Wrong()
    for assigned in assignments(config, root):
        values = {setting.key: setting.value for setting in assigned}
        hits = [is_excluded(pattern, values) for pattern in config.exclude]
        used = [was or hit for was, hit in zip(used, hits, strict=True)]
        if any(hits):
            continue
        try:
            run = _run(config, base, fixed, assigned)
        except ConfigError as error:
            wrong.add(error.problems, assignment_text(values))
            continue
        repeated += run.id in runs
        runs.setdefault(run.id, run)
    if wrong.found:
        raise ConfigError(wrong.problems())
    if not runs:
        place = root.keys.get("exclude", root.place)
        raise ConfigError([Located(place, "exclude leaves no run: take something out of it")])
    idle = [flow_text(p) for p, was in zip(config.exclude, used, strict=True) if not was]
    return Plan(config, tuple(runs.values()), _written(base), repeated, tuple(idle))


def identity(delta: Mapping[str, Any]) -> str:
    """The name of the run that sets these values, whatever their order."""
    return hashlib.sha256(value_json(dict(delta)).encode()).hexdigest()[:_ID_DIGITS]


def _run(
    sweep: SweepConfig, base: MapNode, fixed: Iterable[Setting], assigned: Iterable[Setting]
) -> PlannedRun:
    settings = [*fixed, *assigned]
    # What lies within another key comes after it, whatever their order in the file.
    ordered = sorted(settings, key=lambda setting: setting.key.count("."))
    changes = [
        Override(setting.place, tuple(setting.key.split(".")), copy.deepcopy(setting.node))
        for setting in ordered
    ]
    config = job.load_changed(copy.deepcopy(base), changes)
    resolved = config.model_dump(mode="python")
    delta = {
        setting.key: _typed(setting.value, _inner(resolved, setting.key)) for setting in settings
    }
    run_id = identity(delta)
    name = f"{sweep.name[: _NAME_LENGTH - 9]}-{run_id[:8]}"
    plain = json_values(delta)
    assignment = {setting.key: plain[setting.key] for setting in assigned}
    return PlannedRun(run_id, assignment, config.model_copy(update={"name": name}))


def _typed(written: Any, resolved: Any) -> Any:
    """A value as the job has it: 1 is 1.0 where a number is meant, and '90s' are 90.0 seconds.

    Defaults that were not written stay out, so that a new option of a scheme makes no new runs; and
    text stays as it is, so that a relative path is the same run everywhere.
    """
    if isinstance(written, dict) and isinstance(resolved, dict):
        return {key: _typed(value, resolved.get(key, value)) for key, value in written.items()}
    if isinstance(written, list) and isinstance(resolved, list | tuple):
        if len(written) == len(resolved):
            return [_typed(one, other) for one, other in zip(written, resolved, strict=True)]
        return written
    same = isinstance(written, str) and isinstance(resolved, str)
    return written if same or resolved is ... else resolved


def _inner(value: Any, key: str) -> Any:
    for part in key.split("."):
        if isinstance(value, dict):
            value = value.get(part, ...)
        elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return ...
    return value


def _written(base: MapNode) -> dict[str, Any]:
    """The base's values, without its name, which no run has."""
    values: dict[str, Any] = json_values(
        {key: value_of(node) for key, node in base.items.items() if key != "name"}
    )
    return values


def _seen_from(root: MapNode, problems: Iterable[Located], base: str) -> list[Located]:
    """What is wrong with reaching the base is said at the key that names it."""
    return [
        Located(root.items["base"].place, f"base: {problem}")
        if problem.place == Place(base)
        else problem
        for problem in problems
    ]


class _Wrong:
    """Faults of runs, each once, with the runs that have it."""

    def __init__(self) -> None:
        self.found: dict[Located, list[str]] = {}

    def add(self, problems: Iterable[Located], run: str) -> None:
        for problem in problems:
            self.found.setdefault(problem, []).append(run)

    def problems(self) -> list[Located]:
        """With their runs named."""
        return [
            Located(problem.place, f"{problem.message} (run {runs[0]}{_more(len(runs) - 1)})")
            for problem, runs in self.found.items()
        ]


def _more(others: int) -> str:
    return f", and {others} more" if others else ""
