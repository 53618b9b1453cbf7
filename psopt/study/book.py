"""Results in a file of JSON lines: the setting, then one line a run."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from psopt.record import MetricsWriter, read_metrics

TrialT = TypeVar("TrialT")
OutcomeT = TypeVar("OutcomeT")


class OtherStudy(ValueError):  # noqa: N818 - reads as what happened
    """The file holds the results of a study with another setting."""


class Book(Generic[TrialT, OutcomeT]):
    """Results, kept in ``path``; those that are there already count.

    Args:
        path: the file.
        setting: of the study, a dataclass of plain values.
        trial, outcome: dataclasses of a run and of what came of it, without a common field.

    Raises:
        OtherStudy: the file's setting is another one, or a line lacks what has no default.
    """

    def __init__(
        self, path: Path, setting: Any, trial: type[TrialT], outcome: type[OutcomeT]
    ) -> None:
        self.results: dict[TrialT, OutcomeT] = {}
        rows = read_metrics(path) if path.exists() else []
        self._writer = MetricsWriter(path)
        if not rows:
            self._writer.write(asdict(setting))
            self._writer.flush()
        elif rows[0] != asdict(setting):
            self._writer.close()
            raise OtherStudy(f"{path}: of a study with another setting; name another directory")
        try:
            self.results = {_pick(trial, row): _pick(outcome, row) for row in rows[1:]}
        except TypeError as error:
            self._writer.close()
            raise OtherStudy(
                f"{path}: of another version ({error}); name another directory"
            ) from error

    def add(self, trial: TrialT, outcome: OutcomeT) -> None:
        """Keep a result."""
        self.results[trial] = outcome
        self._writer.write(_plain(trial) | _plain(outcome))
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def _pick(kind: Any, row: dict[str, Any]) -> Any:
    return kind(**{field.name: row[field.name] for field in fields(kind) if field.name in row})


def _plain(value: Any) -> dict[str, Any]:
    return asdict(value)
