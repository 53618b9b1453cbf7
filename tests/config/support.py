from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field
from pydantic.dataclasses import dataclass

from psopt.config import STRICT, ConfigError, JobConfig, Problem, load_job


@dataclass(frozen=True, config=STRICT)
class Wasp:
    """An asynchronous scheme with options of several kinds."""

    name: Literal["wasp"] = Field(default="wasp", description="The scheme.")
    period: int = Field(default=4, ge=1, description="Steps between syncs.")
    weights: tuple[float, float] = Field(default=(0.5, 0.5), description="Two weights.")
    label: str | None = Field(default=None, description="A text.")
    bound: float | Literal["auto"] = Field(default="auto", description="A number, or auto.")


@dataclass(frozen=True, config=STRICT)
class Bsp:
    """A synchronous scheme."""

    name: Literal["bsp"] = Field(default="bsp", description="The scheme.")
    slices: int = Field(default=1, ge=1, description="Slices of a round.")


Job = JobConfig[Annotated[Wasp | Bsp, Field(discriminator="name")]]

MINIMAL = """\
name: digits
model: {name: lenet5}
scheme: {name: wasp}
optimizer: {name: SGD, lr: 0.1}
"""


class Bench:
    """Loads job files written by a test; `path` is the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(
        self,
        text: str | bytes = MINIMAL,
        *overrides: str,
        checks: Iterable[Callable[[Any], Iterable[Problem]]] = (),
    ) -> Any:
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_job(self.path, Job, overrides, tuple(checks))

    def errors(self, text: str | bytes = MINIMAL, *overrides: str, **options: Any) -> list[str]:
        """The lines of the error, with the file's name left out."""
        with pytest.raises(ConfigError) as caught:
            self.load(text, *overrides, **options)
        lines = str(caught.value).split("\n")
        assert len(lines) == len(caught.value.problems)
        return [line.removeprefix(f"{self.path}:") for line in lines]

    def error(self, text: str | bytes = MINIMAL, *overrides: str, **options: Any) -> str:
        """The only line of the error."""
        lines = self.errors(text, *overrides, **options)
        assert len(lines) == 1, lines
        return lines[0]
