"""The schema of a sweep file: one job, and the keys that its runs differ in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from psopt.config.loader import build, read_tree
from psopt.config.nodes import MOST_LEVELS, MapNode
from psopt.config.problems import Problem, SectionError
from psopt.config.section import Section
from psopt.config.suggest import nearest
from psopt.config.values import FiniteFloat, JobName

MOST_RUNS = 10_000
SEED = "seed"
"""The key of a job that `seeds` sets."""

_Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Values = Annotated[list[Any], Field(min_length=1)]
_Seeds = Annotated[list[_Seed], Field(min_length=1)] | Annotated[int, Field(ge=1, le=MOST_RUNS)]
_Bounds = tuple[FiniteFloat, FiniteFloat]


class Distribution(Section):
    """What a value is drawn from: exactly one of these."""

    uniform: _Bounds | None = Field(default=None, description="Evenly between two numbers.")
    loguniform: _Bounds | None = Field(
        default=None, description="Evenly in the logarithm, between two positive numbers."
    )
    choice: _Values | None = Field(default=None, description="One of these values.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in ("uniform", "loguniform", "choice") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError("give exactly one of 'uniform', 'loguniform' and 'choice'")
        bounds = self.uniform or self.loguniform
        if bounds is not None and not bounds[0] < bounds[1]:
            raise _at((given[0],), f"the first number must be below the second, {bounds[1]:g}")
        if self.loguniform is not None and self.loguniform[0] <= 0:
            raise _at(("loguniform", 0), "must be greater than 0: it has a logarithm")
        return self


class RandomConfig(Section):
    """Random search: `count` draws of all keys at once."""

    count: int = Field(ge=1, le=MOST_RUNS, description="How many draws.")
    seed: int = Field(
        default=1, ge=0, le=2**63 - 1, description="Of the draws; a larger count adds to them."
    )
    keys: dict[str, Distribution] = Field(description="Dotted keys, and what each is drawn from.")


class SweepConfig(Section):
    """Many runs of one job: every point of the grid, with every row of `zip`, draw and seed."""

    model_config = ConfigDict(title="psopt sweep")

    name: JobName = Field(description="Name of the sweep; its runs are named after it.")
    base: str = Field(min_length=1, description="The job's YAML file, relative to the sweep's.")
    fixed: dict[str, Any] = Field(default={}, description="Dotted keys that all runs override.")
    grid: dict[str, _Values] = Field(
        default={}, description="Dotted keys with their values; every combination is a run."
    )
    zip: dict[str, _Values] = Field(
        default={},
        description="Dotted keys with values that go together, the first with the first.",
    )
    random: RandomConfig | None = Field(default=None, description="Values that are drawn.")
    seeds: list[_Seed] | None = Field(
        default=None,
        min_length=1,
        description="Seeds of each point: a list, or how many, from 1; the base's if omitted.",
    )
    exclude: list[dict[str, Any]] = Field(
        default=[],
        description="Runs to leave out: those that agree with one of these in all its keys.",
    )
    ranks: int | None = Field(
        default=None, ge=2, description="MPI ranks of each run: a coordinator and its workers."
    )
    simulate: bool = Field(default=False, description="Run on the virtual cluster, without ranks.")

    @field_validator("seeds", mode="before", json_schema_input_type=_Seeds | None)
    @classmethod
    def _count(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        if not 1 <= value <= MOST_RUNS:
            raise ValueError(f"must be a list, or a count from 1 to {MOST_RUNS}, not {value:.6g}")
        return [*range(1, value + 1)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = [*self._of_keys(), *self._of_exclude(), *self._of_size()]
        if (self.ranks is None) != self.simulate:
            text = "give 'ranks: N' for real ranks, or 'simulate: true' for virtual workers"
            problems.append(Problem((), text if self.ranks is None else f"{text}, not both"))
        if problems:
            raise SectionError(problems)
        return self

    @property
    def swept(self) -> list[str]:
        """The keys that runs may differ in, in the order of the file, the seed last."""
        drawn = self.random.keys if self.random else {}
        return [*self.grid, *self.zip, *drawn, *([SEED] if self.seeds else [])]

    @property
    def size(self) -> int:
        """How many runs there are before those of `exclude` are left out."""
        grid = math.prod(len(values) for values in self.grid.values())
        rows = len(next(iter(self.zip.values()))) if self.zip else 1
        draws = self.random.count if self.random else 1
        return grid * rows * draws * max(1, len(self.seeds or ()))

    def _of_keys(self) -> Iterator[Problem]:
        seen: dict[str, str] = {SEED: "seeds"} if self.seeds else {}
        for path, keys in (
            (("fixed",), self.fixed),
            (("grid",), self.grid),
            (("zip",), self.zip),
            (("random", "keys"), self.random.keys if self.random else {}),
        ):
            section = ".".join(path)
            for key in keys:
                if fault := _key_fault(key):
                    yield Problem((*path, key), fault, at_key=True)
                elif key in seen:
                    text = f"{key!r} is in '{seen[key]}' too: a key has one place"
                    yield Problem((*path, key), text, at_key=True)
                seen.setdefault(key, section)
        lengths = {key: len(values) for key, values in self.zip.items()}
        first = next(iter(lengths.values()), 0)
        for key, length in lengths.items():
            if length != first:
                text = f"has {length} values, and {next(iter(lengths))!r} has {first}: they go in pairs"
                yield Problem(("zip", key), text)

    def _of_exclude(self) -> Iterator[Problem]:
        for place, pattern in enumerate(self.exclude):
            for key in pattern:
                if not any(_related(key, swept) for swept in self.swept):
                    meant = nearest(key, self.swept)
                    hint = f"; did you mean {meant!r}?" if meant else ""
                    text = f"runs do not differ in this key{hint}"
                    yield Problem(("exclude", place, key), text)

    def _of_size(self) -> Iterator[Problem]:
        if self.size > MOST_RUNS:
            text = f"these are {self.size} runs: at most {MOST_RUNS} are one sweep"
            yield Problem((), text)


def load_sweep(path: Path) -> tuple[SweepConfig, MapNode]:
    """Load a sweep file: the configuration, and the tree that knows where each value stands.

    Raises:
        ConfigError: everything that is wrong with it.
    """
    root, faults = read_tree(path, "sweep")
    return build(root, SweepConfig, problems=faults), root


def _key_fault(key: str) -> str:
    parts = key.split(".")
    if not all(part.strip() == part != "" for part in parts) or not key.isprintable():
        return f"{key!r} is no dotted key: write section.key, as in optimizer.lr"
    if len(parts) > MOST_LEVELS:
        return f"a key has at most {MOST_LEVELS} parts, not {len(parts)}"
    if key == "name":
        return "the names of runs are the sweep's: leave 'name' out"
    return ""


def _related(key: str, other: str) -> bool:
    """Whether one key is the other, or lies within it."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def _at(path: tuple[str | int, ...], message: str) -> SectionError:
    return SectionError([Problem(path, message)])
