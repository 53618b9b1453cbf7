"""Whether the entries of a run's record are what a report takes them for.

A run directory may come from somebody else, or from another version; what is wrong with one is found
here, with the file's name, before anything is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from psopt.config import one_line

_COUNTS = ("step", "epoch", "samples", "seconds", "staleness", "test_accuracy")
_LOSSES = ("objective", "test_loss")
_OUTCOMES = (
    *("steps", "samples", "seconds", "epochs", "workers", "refused_updates"),
    *("test_accuracy", "seconds_to_target"),
)
_TEXTS = ("status", "reason", "scheme", "crew")
_MOST = 1e15  # of what is counted from 0, seconds among it: as far as floats count whole numbers
_LARGEST = 1e200  # a loss beyond it has no place on an axis, whose margins have to be numbers too
_SHOWN = 40  # characters of a value in a message


class EntryError(ValueError):
    """An entry has another type or range than psopt gives it; the text names file and entry."""


def checked_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a metrics file, without losses that are too large to be drawn.

    Raises:
        EntryError: a number is none, or out of range; with the line.
    """
    return [_checked_row(f"{path}:{line}", row) for line, row in enumerate(rows, 1)]


def check_summary(path: Path, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary, its texts fit to be printed on one line of a terminal.

    Raises:
        EntryError: with the key.
    """
    checked = dict(summary)
    for name in _TEXTS:
        value = summary.get(name)
        if isinstance(value, str):
            checked[name] = one_line(value)
        elif value is not None:
            raise _wrong(str(path), name, value, "a text")
    for name in _OUTCOMES:
        _require_count(str(path), name, summary.get(name))
    staleness = summary.get("staleness_histogram") or {}
    if not isinstance(staleness, dict):
        raise _wrong(str(path), "staleness_histogram", staleness, "a mapping")
    for key, count in staleness.items():
        if not (key.isascii() and key.isdigit() and float(key) <= _MOST and isinstance(count, int)):
            raise _wrong(str(path), "staleness_histogram", {key: count}, "counts by whole numbers")
        _require_count(str(path), f"staleness_histogram of {key}", count)
    _check_worker_seconds(str(path), summary.get("worker_seconds") or [])
    _check_losses(str(path), summary)
    return checked


def _check_losses(where: str, summary: Mapping[str, Any]) -> None:
    lost, refused = summary.get("lost_workers") or [], summary.get("refused_by") or {}
    if not isinstance(lost, list):
        raise _wrong(where, "lost_workers", lost, "a list")
    if not isinstance(refused, dict) or not all(key.isdecimal() for key in refused):
        raise _wrong(where, "refused_by", refused, "counts by worker")
    for value in (*lost, *refused.values()):
        _require_count(where, "lost_workers or refused_by", value)


def _check_worker_seconds(where: str, workers: Any) -> None:
    if not isinstance(workers, list):
        raise _wrong(where, "worker_seconds", workers, "a list")
    for row in workers:
        if not isinstance(row, dict):
            raise _wrong(where, "worker_seconds", row, "mappings")
        for kind in ("compute", "wait", "communication"):
            _require_count(where, f"worker_seconds: {kind}", row.get(kind))


def _checked_row(where: str, row: Mapping[str, Any]) -> dict[str, Any]:
    checked = dict(row)
    for name in _COUNTS:
        _require_count(where, name, row.get(name))
    for name in _LOSSES:
        value = row.get(name)
        if value is not None and not _is_number(value):
            raise _wrong(where, name, value, "a number")
        if value is not None and abs(value) > _LARGEST:
            checked[name] = None
    return checked


def _require_count(where: str, name: str, value: Any) -> None:
    if value is not None and not (_is_number(value) and 0 <= value <= _MOST):
        raise _wrong(where, name, value, f"a number from 0 to {_MOST:g}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong(where: str, name: str, value: Any, expected: str) -> EntryError:
    shown = ascii(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return EntryError(f"{where}: {name} is {shown}, not {expected}; the file is damaged")
