"""The study of DANE beside BSP on a network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from psopt.study import rounds
from psopt.study.book import OtherStudy
from psopt.study.rounds import Outcome, Setting, Trial, best, measure, plot, table

QUICK = Setting("sample", rows=512, target=0.3, passes=12)


def test_a_study_and_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    torch.set_num_threads(2)
    first = dict(measure(QUICK, path, [2]))
    assert torch.get_num_threads() == 1  # the job's
    slow, fast = Trial(2, "bsp", 0.0283), Trial(2, "bsp", 0.04)
    assert first.keys() == {Trial(2, "dane", 0.1), slow, fast}
    for outcome in first.values():
        assert outcome.seconds is not None
        assert outcome.seconds > 0
        assert outcome.accuracy >= QUICK.target
    dane, bsp = first[Trial(2, "dane", 0.1)].passes, first[fast].passes
    assert dane is not None
    assert dane % 3 == 1  # a gradient at the start; two local passes and a gradient a round
    assert bsp == int(bsp or 0)
    monkeypatch.setattr(rounds, "run", None)  # nothing is run again
    assert measure(QUICK, path, [2]) == first
    with pytest.raises(OtherStudy):
        measure(Setting("sample", rows=256), path, [2])


def test_table_and_plot(tmp_path: Path) -> None:
    lost, early, late = Outcome(None, None, 0.5), Outcome(9.0, 2.0, 0.98), Outcome(12.0, 3.0, 0.99)
    dane = Outcome(10.25, 7.0, 0.981)
    results = {
        Trial(2, "dane", 0.1): dane,
        Trial(2, "bsp", 0.04): early,
        Trial(2, "bsp", 0.02): late,
        Trial(8, "bsp", 0.04): late,
        Trial(8, "bsp", 0.16): lost,
        Trial(1, "bsp", 0.02): lost,
    }
    assert table(results).splitlines()[2:] == [
        "| 1 | bsp | 0.02 | - | - | 50.00 % |",
        "| 2 | bsp | 0.02 | 12.0 | 3.0 | 99.00 % |",
        "| 2 | bsp | 0.04 | 9.0 | 2.0 | 98.00 % |",
        "| 2 | dane | 0.1 | 10.2 | 7.0 | 98.10 % |",
        "| 8 | bsp | 0.04 | 12.0 | 3.0 | 99.00 % |",
        "| 8 | bsp | 0.16 | - | - | 50.00 % |",
    ]
    assert best(results) == {
        Trial(1, "bsp", 0.02): lost,
        Trial(2, "bsp", 0.04): early,
        Trial(2, "dane", 0.1): dane,
        Trial(8, "bsp", 0.04): late,
    }
    (made,) = plot(results, tmp_path / "dane")
    assert made == tmp_path / "dane.png"
    assert made.stat().st_size > 1000
