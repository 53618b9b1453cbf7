"""The study of DANE beside BSP on a network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from psopt.study import rounds
from psopt.study.book import OtherStudy
from psopt.study.rounds import Outcome, Setting, Trial, measure, plot, table

QUICK = Setting("sample", rows=512, target=0.3, passes=12)


def test_a_study_and_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    torch.set_num_threads(2)
    first = dict(measure(QUICK, path, [2]))
    assert torch.get_num_threads() == 1  # the job's
    assert first.keys() == {Trial(2, "dane"), Trial(2, "bsp")}
    for outcome in first.values():
        assert outcome.seconds is not None
        assert outcome.seconds > 0
        assert outcome.accuracy >= QUICK.target
    dane, bsp = first[Trial(2, "dane")].passes, first[Trial(2, "bsp")].passes
    assert dane is not None
    assert dane % 3 == 1  # a gradient at the start; two local passes and a gradient a round
    assert bsp == int(bsp or 0)
    monkeypatch.setattr(rounds, "run", None)  # nothing is run again
    assert measure(QUICK, path, [2]) == first
    with pytest.raises(OtherStudy):
        measure(Setting("sample", rows=256), path, [2])


def test_table_and_plot(tmp_path: Path) -> None:
    results = {
        Trial(2, "dane"): Outcome(10.25, 7.0, 0.981),
        Trial(1, "bsp"): Outcome(None, None, 0.5),
    }
    assert table(results).splitlines()[2:] == [
        "| 1 | bsp | - | - | 50.00 % |",
        "| 2 | dane | 10.2 | 7.0 | 98.10 % |",
    ]
    (made,) = plot(results, tmp_path / "dane")
    assert made == tmp_path / "dane.png"
    assert made.stat().st_size > 1000
