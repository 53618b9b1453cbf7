"""The table of what became of many schemes under faults; no rank is started here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from psopt.chaos import scoreboard
from psopt.chaos.real import Outcome
from psopt.chaos.scoreboard import Plan, markdown, measure
from tests.training import ROOT

DONE = {
    "status": "completed",
    "samples": 100,
    "refused_samples": 0,
    "refused_updates": 0,
    "parameters_sha256": "a",
    "lost_workers": [1],
}


def outcome(notice: float | None = 0.25, status: int | None = 0, **changes: Any) -> Outcome:
    return Outcome("kill", 1, status, 9.0, 3.0, notice, {**DONE, **changes})


class Played:
    """In the place of real runs."""

    asked: ClassVar[list[tuple[str, list[str]]]] = []
    calm = outcome(None)

    def __init__(
        self, config: Path, ranks: int, folder: Path, own: Sequence[str], most: float
    ) -> None:
        self.asked.append((folder.name, list(own)))

    def trials(self, kinds: Sequence[str], seed: int, count: int) -> Iterator[Outcome]:
        made = [outcome(), outcome(0.75, parameters_sha256="b"), outcome(None, None)]
        yield from made[:count]


def test_scoreboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other parameters are wrong for a synchronous scheme only; who hangs is never right."""
    monkeypatch.setattr(scoreboard, "Runs", Played)
    Played.asked.clear()
    plans = [Plan(ROOT / "configs" / f"lenet5_{name}.yaml", 4, 2) for name in ("asp", "bsp")]
    said: list[str] = []
    rows = measure(plans, (3, 1), 12, tmp_path, said.append)
    assert [(row.scheme, row.fault, row.right) for row in rows] == [
        *(("asp", "kill", 2), ("asp", "message", 1), ("bsp", "kill", 1), ("bsp", "message", 1))
    ]
    assert [name for name, _ in Played.asked] == [
        *("asp-kill", "asp-message", "bsp-kill", "bsp-message")
    ]
    assert all("cluster.on_loss=continue" in own for _, own in Played.asked)
    assert "train.epochs=4" in Played.asked[0][1]
    assert "train.epochs=2" in Played.asked[1][1]
    assert "bsp, kill of worker 1: other parameters than without faults" in said
    text = markdown(rows)
    assert "| asp | kill | 3 | 2 | 1 | 3 | 0.50 | 0.75 | 3.0 | 3.0 |\n" in text
    assert text.endswith(
        "5 of 8 runs ended as they should; a loss was noticed after 0.25 s (median), 0.75 s at most.\n"
    )
