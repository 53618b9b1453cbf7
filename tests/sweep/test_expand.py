"""What a sweep file stands for, and by which name each of its runs is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from psopt.config import assignment_text
from psopt.sweep.expand import is_excluded
from psopt.sweep.plan import identity, plan
from tests.sweep.making import planned, sweep_file

GOLDEN = Path(__file__).parent / "golden"
EVERYTHING = """\
fixed: {train.epochs: 2}
grid:
  optimizer.lr: [0.1, 1]
  scheme: [{name: bsp}, {name: wasp, alpha: 2}]
zip:
  train.batch_size: [2, 5]
  optimizer.momentum: [0.5, 0]
random:
  count: 2
  seed: 3
  keys:
    optimizer.weight_decay: {loguniform: [1e-5, 1e-2]}
    cluster.latency: {uniform: [0, 1]}
    device.kind: {choice: [cpu, auto]}
seeds: [4, 7]
exclude:
  - {scheme.name: wasp, optimizer.lr: 1.0}
  - {scheme: {name: bsp}, seed: 7}
"""


def lines(text: str, folder: Path) -> list[str]:
    return [f"{run.id}  {assignment_text(run.assignment)}" for run in planned(folder, text).runs]


def ids(folder: Path, text: str) -> set[str]:
    return {run.id for run in planned(folder, text).runs}


def values(folder: Path, text: str, key: str) -> list[Any]:
    return [run.assignment[key] for run in planned(folder, text).runs]


def test_golden_expansion(tmp_path: Path) -> None:
    expected = (GOLDEN / "expansion.txt").read_text(encoding="utf-8").splitlines()
    assert lines(EVERYTHING, tmp_path) == expected


def test_a_run_has_the_job_of_its_values(tmp_path: Path) -> None:
    run = planned(tmp_path, EVERYTHING).runs[0]
    config = run.config
    assert (config.train.epochs, config.train.batch_size, config.seed) == (2, 2, 4)
    assert config.optimizer is not None
    assert (config.optimizer.lr, config.optimizer.options["momentum"]) == (0.1, 0.5)
    assert config.name == f"rates-{run.id[:8]}"


def test_order_of_the_file_changes_no_run(tmp_path: Path) -> None:
    one = "grid: {optimizer.lr: [0.1, 0.2], train.batch_size: [2, 4]}\nseeds: [1, 2]\n"
    other = "seeds: [2, 1]\ngrid: {train.batch_size: [4, 2], optimizer.lr: [2e-1, 1.0e-1]}\n"
    assert ids(tmp_path, one) == ids(tmp_path, other)


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ("grid: {optimizer.lr: [0.1]}", "grid: {optimizer.lr: [0.3, 0.1]}", 1),
        ("seeds: 2", "seeds: 5", 3),
        (
            "random: {count: 3, keys: {optimizer.lr: {uniform: [0.1, 1]}}}",
            "random: {count: 5, keys: {optimizer.lr: {uniform: [0.1, 1]}}}",
            2,
        ),
    ],
)
def test_a_value_more_adds_new_runs_only(tmp_path: Path, before: str, after: str, new: int) -> None:
    old, grown = ids(tmp_path, before), ids(tmp_path, after)
    assert old < grown
    assert len(grown) - len(old) == new


def test_values_that_mean_the_same_are_one_run(tmp_path: Path) -> None:
    assert ids(tmp_path, "grid: {optimizer.lr: [1]}") == ids(
        tmp_path, "grid: {optimizer.lr: [1.0]}"
    )
    assert ids(tmp_path, "grid: {stop.seconds: [90s]}") == ids(
        tmp_path, "grid: {stop.seconds: [90]}"
    )
    plan = planned(tmp_path, "grid: {optimizer.lr: [1, 1.0, 1e0, 2]}")
    assert (len(plan.runs), plan.repeated) == (2, 2)


def test_what_is_fixed_belongs_to_a_run(tmp_path: Path) -> None:
    assert not ids(tmp_path, "fixed: {train.epochs: 2}") & ids(tmp_path, "fixed: {train.epochs: 3}")


def test_a_sweep_of_nothing_is_the_base(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, "").runs
    assert (run.assignment, run.id) == ({}, identity({}))


def test_the_identity_is_a_fixed_function() -> None:
    assert identity({"b": 1.0, "a": {"y": 1, "x": None}}) == "9baf5ceac0023b95"
    assert identity({"a": {"x": None, "y": 1}, "b": 1.0}) == "9baf5ceac0023b95"
    assert identity({"seed": 1}) != identity({"seed": True})


def test_draws_keep_to_their_bounds_and_to_themselves(tmp_path: Path) -> None:
    text = "random: {count: 200, keys: {optimizer.lr: {loguniform: [1e-4, 1]}%s}}"
    alone = values(tmp_path, text % "", "optimizer.lr")
    beside = values(tmp_path, text % ", cluster.latency: {uniform: [0, 1]}", "optimizer.lr")
    assert alone == beside
    assert all(1e-4 <= value <= 1 for value in alone)
    assert sum(value < 1e-2 for value in alone) == pytest.approx(100, abs=25)
    assert -math.log10(min(alone)) > 3.8


def test_draws_are_the_same_at_every_point(tmp_path: Path) -> None:
    text = "grid: {train.batch_size: [2, 4]}\n"
    text += "random: {count: 3, keys: {optimizer.lr: {uniform: [0.1, 1]}}}"
    drawn = values(tmp_path, text, "optimizer.lr")
    assert drawn[:3] == drawn[3:]


def test_text_stays_text(tmp_path: Path) -> None:
    text = "grid: {model.kwargs: [{bias: false}], data.path: [sample]}"
    (run,) = planned(tmp_path, text).runs
    assert run.assignment == {"model.kwargs": {"bias": False}, "data.path": "sample"}


def test_a_path_is_the_same_run_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sweep_file(tmp_path, "grid: {data.path: [tiny.h5]}")
    before = plan(path).runs[0]
    monkeypatch.chdir(tmp_path)
    after = plan(path).runs[0]
    assert before.id == after.id
    assert after.config.data.path == str(tmp_path / "tiny.h5")


@pytest.mark.parametrize(
    ("pattern", "excluded"),
    [
        ({"a.b": 1}, True),
        ({"a.b": 1.0}, True),
        ({"a.b": True}, False),
        ({"a.b": 2}, False),
        ({"a": {"b": 1}}, True),
        ({"a": {"b": 1, "c": 2}}, False),
        ({"s.name": "x"}, True),
        ({"s": {"name": "x"}}, True),
        ({"s": "x"}, False),
        ({"s.name": "x", "a.b": 2}, False),
        ({"s.name.z": 1}, False),
        ({"t": True}, True),
        ({"t": 1}, False),
        ({"n": None}, True),
        ({"m": None}, False),
    ],
)
def test_exclude(pattern: dict[str, Any], excluded: bool) -> None:
    run = {"a.b": 1, "s": {"name": "x", "y": 1}, "t": True, "n": None}
    assert is_excluded(pattern, run) is excluded


def test_an_exclude_that_excludes_nothing_is_told(tmp_path: Path) -> None:
    text = "grid: {optimizer.lr: [0.1, 0.2]}\nexclude: [{optimizer.lr: 0.3}, {optimizer.lr: 0.2}]"
    plan = planned(tmp_path, text)
    assert (len(plan.runs), plan.idle) == (1, ("{optimizer.lr: 0.3}",))
