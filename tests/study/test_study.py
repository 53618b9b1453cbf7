"""Runs on the virtual cluster, and a whole small study."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from psopt.study.ledger import Ledger, OtherStudy, describe
from psopt.study.main import BEGIN, END, QUICK, insert, make
from psopt.study.speedup import orders
from psopt.study.trial import Outcome, Setting, Trial, run_trial
from tests.study.test_speedup import DIVERGED, GOOD

SETTING = replace(QUICK.setting, cap=200)


def without_wall(outcome: Outcome) -> Outcome:
    return replace(outcome, wall=0.0)


def test_one_worker_is_the_same_run_under_every_scheme() -> None:
    found = [run_trial(SETTING, Trial(s, 1, False, -4, 1)) for s in ("bsp", "asp", "wasp")]
    for outcome in found[1:]:
        assert outcome.gradients == found[0].gradients
        assert (outcome.accuracy, outcome.loss) == (found[0].accuracy, found[0].loss)
        assert outcome.seconds == pytest.approx(found[0].seconds, rel=1e-6)


def test_a_run_repeats_bit_by_bit() -> None:
    trial = Trial("wasp", 4, True, -4, 2)
    first, second = run_trial(SETTING, trial), run_trial(SETTING, trial)
    assert without_wall(first) == without_wall(second)


def test_a_straggler_slows_bsp_and_leaves_its_parameters() -> None:
    equal = run_trial(SETTING, Trial("bsp", 4, False, -4, 1))
    slow = run_trial(SETTING, Trial("bsp", 4, True, -4, 1))
    assert (slow.gradients, slow.accuracy, slow.loss) == (
        equal.gradients,
        equal.accuracy,
        equal.loss,
    )
    assert equal.seconds is not None
    assert slow.seconds is not None
    assert slow.seconds > 2.5 * equal.seconds
    assert slow.computing < equal.computing


def test_staleness_of_asp_is_that_of_the_others() -> None:
    hard = replace(SETTING, target=1.0, cap=800, every=800)
    outcome = run_trial(hard, Trial("asp", 16, False, -6, 1))
    assert outcome.gradients == 800
    assert outcome.staleness == pytest.approx(15, rel=0.05)


def test_a_run_ends_at_its_bound_and_its_cap() -> None:
    hard = replace(SETTING, target=1.0)
    early = run_trial(hard, Trial("asp", 4, False, -4, 1), bound=0.5)
    assert early.seconds is None
    assert early.gradients < 100
    assert run_trial(hard, Trial("bsp", 4, False, -4, 1)).gradients == 200


def test_a_run_that_diverges() -> None:
    far = replace(SETTING, model="mlp", target=1.0)
    outcome = run_trial(far, Trial("asp", 8, False, 12, 1))
    assert outcome.diverged
    assert outcome.lost


def test_ledger_goes_on(tmp_path: Path) -> None:
    path, trial = tmp_path / "results.jsonl", Trial("asp", 2, True, -4, 1)
    ledger = Ledger(path, SETTING)
    ledger.add(trial, GOOD)
    ledger.add(trial, DIVERGED)
    ledger.close()
    with path.open("a", encoding="utf-8") as file:
        file.write('{"scheme": "asp", "wor')  # interrupted
    again = Ledger(path, SETTING)
    again.close()
    assert again.results == {trial: DIVERGED}
    assert all(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def test_ledger_of_another_study(tmp_path: Path) -> None:
    Ledger(tmp_path / "results.jsonl", SETTING).close()
    with pytest.raises(OtherStudy, match="another setting"):
        Ledger(tmp_path / "results.jsonl", Setting("sample"))


def test_a_run_in_a_line() -> None:
    trial = Trial("asp", 8, True, -4, 2)
    assert describe(trial, GOOD).startswith("asp   8 straggler rate 2^-4  seed 2:   10.0 s  acc")
    assert "diverged" in describe(trial, DIVERGED)


def test_a_whole_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = replace(QUICK, seeds=(1,), lowest=-4, highest=-3)
    text = make(study, tmp_path, jobs=1)
    assert (tmp_path / "speedup.md").read_text(encoding="utf-8") == text
    assert (tmp_path / "speedup.png").is_file()
    assert "4 equal workers, asp: mean staleness" in text
    assert "times a plain one" in text
    made = capsys.readouterr().out.splitlines()
    ledger = Ledger(tmp_path / "results.jsonl", study.setting)
    ledger.close()
    assert len(ledger.results) <= len(made)
    assert orders(study, ledger.results) == []


def test_page_goes_into_a_document(tmp_path: Path) -> None:
    document, plot = tmp_path / "docs" / "page.md", tmp_path / "speedup.png"
    document.parent.mkdir()
    plot.write_bytes(b"plot")
    document.write_text(f"# Title\n{BEGIN}\nold\n{END}\nend\n", encoding="utf-8")
    for text in ("first\n", "second\n"):
        insert(document, text, plot)
    expected = f"# Title\n{BEGIN}\nsecond\n{END}\nend\n"
    assert document.read_text(encoding="utf-8") == expected
    assert (tmp_path / "docs" / "speedup.png").read_bytes() == b"plot"


def test_a_document_without_marks(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("# Title\n", encoding="utf-8")
    with pytest.raises(ValueError, match="lacks the line"):
        insert(document, "text\n", tmp_path / "speedup.png")
