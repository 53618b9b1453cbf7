"""What is wrong with a job file, and where: the only error that the loader raises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

Path = tuple[str | int, ...]
# A message may quote what is in the file, which may be anything.
_LONGEST_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong at one place of a configuration.

    Attributes:
        path: keys and list positions from the top of the job (or of the section that raises it).
        message: what is wrong and the remedy, without the place.
        at_key: the fault is the last key itself, not its value: an error points at the key.
    """

    path: Path
    message: str
    at_key: bool = False

    def __str__(self) -> str:
        path = dotted(self.path[:-1] if self.at_key else self.path)
        return f"{path}: {self.message}" if path else self.message


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written: a file with line and column (from 1), or a `--set`."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        if self.line is None:
            return self.source
        return f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Located:
    """A problem with its place: one line of a `ConfigError`."""

    place: Place
    message: str

    def __str__(self) -> str:
        message = self.message
        if len(message) > _LONGEST_MESSAGE:
            message = message[:_LONGEST_MESSAGE] + "..."
        return one_line(f"{self.place}: {message}")


class ConfigError(ValueError):
    """A job file (with its overrides) is not valid; `problems` holds every fault found.

    `str(error)` is one line a problem, "file:line:column: message", in the order of the file.
    """

    def __init__(self, problems: Iterable[Located]) -> None:
        self.problems = tuple(sorted(problems, key=_in_file_order))
        super().__init__("\n".join(map(str, self.problems)))


class SectionError(ValueError):
    """Raised by a validator of a section that can say which of its keys are at fault.

    Paths are relative to the section that raises it; the loader turns them into lines and columns.
    `fields` are errors that pydantic found in the same section.
    """

    def __init__(self, problems: Sequence[Problem], fields: ValidationError | None = None) -> None:
        self.problems = tuple(problems)
        self.fields = fields
        lines = [str(problem) for problem in self.problems]
        if fields is not None:
            details = fields.errors(include_url=False, include_context=False)
            lines += [str(Problem(detail["loc"], detail["msg"])) for detail in details]
        super().__init__("; ".join(lines))


def dotted(path: Path) -> str:
    """Write a path as people do: `optimizer.groups[0].lr`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def one_line(text: str) -> str:
    """Return the text with line breaks and other unprintable characters written as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _in_file_order(problem: Located) -> tuple[bool, int, int]:
    place = problem.place
    return place.line is None, place.line or 0, place.column or 0
