"""The page and the plot of a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from psopt.study.speedup import Cell
from psopt.study.table import draw, entries, page, rate
from psopt.study.trial import Outcome, Trial
from tests.study.test_speedup import GOOD, STUDY, complete, formula

SMALL = replace(STUDY, workers=(1, 4))


def test_entry_is_the_median_of_the_seeds() -> None:
    results, _ = complete(SMALL)
    entry = entries(SMALL, results)[Cell("bsp", 4, False)]
    assert (entry.power, entry.reached, entry.seeds) == (-3, 3, 3)
    assert entry.seconds == pytest.approx(10.2 / 4)
    assert entry.speedup == pytest.approx(4.0)


def test_page() -> None:
    results, _ = complete(SMALL)
    text = page(SMALL, results)
    golden = Path(__file__).with_name("golden.md")
    assert text == golden.read_text(encoding="utf-8")


def test_seeds_that_missed_the_target_are_told() -> None:
    def fragile(trial: Trial) -> Outcome:
        missed = trial.scheme == "wasp" and trial.seed == 3
        return replace(GOOD, seconds=None, accuracy=0.9) if missed else formula(trial)

    results, _ = complete(SMALL, fragile)
    entry = entries(SMALL, results)[Cell("wasp", 4, False)]
    assert (entry.reached, entry.seeds) == (2, 3)
    assert " (2 of 3) |" in page(SMALL, results)


def test_a_place_where_nothing_reached_the_target_is_a_dash() -> None:
    results, _ = complete(
        SMALL,
        lambda t: replace(GOOD, seconds=None, accuracy=0.5) if t.scheme == "asp" else formula(t),
    )
    row = next(line for line in page(SMALL, results).splitlines() if line.startswith("| 4 "))
    assert row.split(" | ")[4:7] == ["-", "-", "-"]


def test_page_of_nothing() -> None:
    text = page(SMALL, {})
    assert "| 4 | - | - | - | - | - | - | - | - | - |" in text


def test_plot(tmp_path: Path) -> None:
    results, _ = complete(SMALL)
    (path,) = draw(SMALL, results, tmp_path / "speedup")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_plot_of_nothing(tmp_path: Path) -> None:
    (path,) = draw(SMALL, {}, tmp_path / "speedup")
    assert path.is_file()


@pytest.mark.parametrize(("power", "text"), [(-7, "1/128"), (0, "1"), (2, "4")])
def test_rate(power: int, text: str) -> None:
    assert rate(power) == text
