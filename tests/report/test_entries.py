"""What a report takes rows and summaries for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psopt.report.entries import EntryError, check_summary, checked_rows

WHERE = Path("run/file")


def test_what_a_run_writes() -> None:
    rows = [{"kind": "step", "step": 1, "objective": -1e190, "worker": None}, {}]
    assert checked_rows(WHERE, rows) == rows
    assert checked_rows(WHERE, [{"test_loss": 1e300}]) == [{"test_loss": None}]
    summary = {"status": "failed", "reason": "a\nb", "workers": 2, "crew": None}
    summary |= {"staleness_histogram": {"0": 3}, "worker_seconds": [{"compute": 1.0, "wait": None}]}
    assert check_summary(WHERE, summary) == {**summary, "reason": r"a\nb"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"step": "1"}, "step is '1', not a number from 0"),
        ({"seconds": -1}, "seconds is -1"),
        ({"samples": 1e16}, "samples is 1e"),
        ({"test_loss": [0.0]}, r"test_loss is \[0.0\], not a number"),
        ({"objective": True}, "objective is True"),
        ({"step": "x" * 1000}, r"step is 'x{39}\.\.\., not"),
    ],
)
def test_rows(row: dict[str, Any], message: str) -> None:
    with pytest.raises(EntryError, match=f"^run/file:2: {message}"):
        checked_rows(WHERE, [{}, row])


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        ({"status": 1}, "status is 1, not a text"),
        ({"crew": ["mpi"]}, "crew is "),
        ({"steps": {}}, "steps is {}, not a number"),
        ({"staleness_histogram": [1]}, r"staleness_histogram is \[1\], not a mapping"),
        ({"staleness_histogram": {"x": 1}}, "staleness_histogram is {'x': 1}, not counts"),
        ({"staleness_histogram": {"1": 0.5}}, "staleness_histogram is "),
        ({"staleness_histogram": {"9" * 30: 1}}, "staleness_histogram is "),
        ({"staleness_histogram": {"1": -1}}, "staleness_histogram of 1 is -1"),
        ({"worker_seconds": {"0": 1}}, "worker_seconds is {'0': 1}, not a list"),
        ({"worker_seconds": [1]}, "worker_seconds is 1, not mappings"),
        ({"worker_seconds": [{"wait": "x"}]}, "worker_seconds: wait is 'x'"),
    ],
)
def test_summaries(summary: dict[str, Any], message: str) -> None:
    with pytest.raises(EntryError, match=f"^run/file: {message}"):
        check_summary(WHERE, summary)
