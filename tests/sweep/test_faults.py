"""Sweep files with mistakes: all are told at once, where they are, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweep.making import HEAD, refused, sweep_file

WRONG = {
    "grids: {a: [1]}": ["4:1: unknown key 'grids'; did you mean 'grid'?"],
    "grid: {optimizer.lr: 0.1}": ["4:22: grid.optimizer.lr: must be a list, not 0.1"],
    "grid: {optimizer.lr: []}": [
        "4:22: grid.optimizer.lr: must be a list of at least 1 items, not a list"
    ],
    "grid: {optimizer.lr: [0.1], optimizer.lr: [0.2]}": [
        "4:29: duplicate key 'optimizer.lr': on line 4 and on line 4"
    ],
    "grid: {optimizer.lr: [0.1]}\nzip: {optimizer.lr: [0.2]}": [
        "5:7: zip: 'optimizer.lr' is in 'grid' too: a key has one place"
    ],
    "grid: {seed: [1]}\nseeds: 2": ["4:8: grid: 'seed' is in 'seeds' too: a key has one place"],
    "fixed: {name: x}": ["4:9: fixed: the names of runs are the sweep's: leave 'name' out"],
    "zip: {optimizer.lr: [1, 2], train.epochs: [1]}": [
        "4:43: zip.train.epochs: has 1 values, and 'optimizer.lr' has 2: they go in pairs"
    ],
    "exclude: [{optimizer.lr: 1}]": [
        "4:26: exclude[0].optimizer.lr: runs do not differ in this key"
    ],
    "grid: {optimizer.lr: [1]}\nexclude: [{optimiser.lr: 1}]": [
        "5:26: exclude[0].optimiser.lr: runs do not differ in this key; did you mean 'optimizer.lr'?"
    ],
    "grid: {optimizer.lr: [1]}\nexclude: [{optimizer.lr: 1}]": [
        "5:1: exclude leaves no run: take something out of it"
    ],
    "ranks: 3": [
        "1:1: give 'ranks: N' for real ranks, or 'simulate: true' for virtual workers, not both"
    ],
    "seeds: 0": ["4:8: seeds: must be a list, or a count from 1 to 10000, not 0"],
    "seeds: [1, -1]": ["4:12: seeds[1]: must be at least 0, not -1"],
    "random: {count: 1, keys: {optimizer.lr: {uniform: [2, 1]}}}": [
        "4:51: random.keys.optimizer.lr.uniform: the first number must be below the second, 1"
    ],
    "random: {count: 1, keys: {optimizer.lr: {loguniform: [0, 1]}}}": [
        "4:55: random.keys.optimizer.lr.loguniform[0]: must be greater than 0: it has a logarithm"
    ],
    "random: {count: 1, keys: {optimizer.lr: {uniform: [1, 2], choice: [1]}}}": [
        "4:41: random.keys.optimizer.lr: give exactly one of 'uniform', 'loguniform' and 'choice'"
    ],
    "random: {count: 1, keys: {optimizer.lr: {uniform: [1, .inf]}}}": [
        "4:55: random.keys.optimizer.lr.uniform[1]: must be a finite number, not .inf"
    ],
    "grid: {optimizer.lr: [.nan]}": ["4:23: must be a number that a job can use, not nan"],
    "grid: {optimizer..lr: [1]}": [
        "4:8: grid: 'optimizer..lr' is no dotted key: write section.key, as in optimizer.lr"
    ],
    'grid: {"": [1]}': ["4:8: grid: '' is no dotted key: write section.key, as in optimizer.lr"],
    'grid: {"a\\nb": [1]}': [
        "4:8: grid: 'a\\nb' is no dotted key: write section.key, as in optimizer.lr"
    ],
    "grid: {? [1] : [1]}": ["4:10: a key must be one word, not a list or a mapping"],
    "grid: {optimizer.lr: !!python/name:os.system [1]}": [
        "4:22: the tag 'tag:yaml.org,2002:python/name:os.system' is refused: remove it (quote what is text)"
    ],
}


@pytest.mark.parametrize("text", WRONG)
def test_the_file_itself(tmp_path: Path, text: str) -> None:
    assert refused(sweep_file(tmp_path, text)) == WRONG[text]


RUNS = {
    "grid: {optimizer.learning_rate: [0.1, 1]}": [
        "4:8: optimizer: unknown key 'learning_rate'; did you mean 'lr'? "
        "(run optimizer.learning_rate=0.1, and 1 more)"
    ],
    "grid: {optimizer.lr: [0.1, -2]}": [
        "4:28: optimizer.lr: must be greater than 0, not -2 (run optimizer.lr=-2)"
    ],
    "grid: {__class__: [1]}": [
        "4:8: unknown key '__class__'; valid: name, seed, model, data, scheme, optimizer, scheduler, "
        "loss, train, stop, evaluate, checkpoint, log, cluster, device, batch, on_bad_update, "
        "bad_update_factor (run __class__=1)"
    ],
    "fixed: {train.epochs: x}\nseeds: 2": [
        "4:23: train.epochs: must be a whole number, not the text 'x' (run seed=1, and 1 more)"
    ],
    "grid: {train.epochs.x: [1]}": [
        "4:8: train.epochs is a single value (BASE:31:11), so it has no key 'x' (run train.epochs.x=1)"
    ],
    "grid: {scheme: [{name: asp}, {name: wasp, alpa: 1}]}": [
        "4:43: scheme: unknown key 'alpa'; did you mean 'alpha'? (run scheme={name: wasp, alpa: 1})"
    ],
}


@pytest.mark.parametrize("text", RUNS)
def test_every_job_is_checked(tmp_path: Path, text: str) -> None:
    path = sweep_file(tmp_path, text)
    said = [line.replace(str(tmp_path / "job.yaml"), "BASE") for line in refused(path)]
    assert said == RUNS[text]


def test_all_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "grid:\n  optimizer.lr: [0.1, -2]\n  train.epoch: [1]\n"
    assert [line.partition(" ")[0] for line in refused(sweep_file(tmp_path, text))] == [
        "5:23:",
        "6:3:",
    ]


def test_too_many_runs(tmp_path: Path) -> None:
    text = "seeds: 10000\ngrid: {optimizer.lr: [1, 2]}\n"
    assert refused(sweep_file(tmp_path, text)) == [
        "1:1: these are 20000 runs: at most 10000 are one sweep"
    ]


def test_no_crew(tmp_path: Path) -> None:
    path = sweep_file(tmp_path, "", head="name: x\nbase: job.yaml\n")
    assert refused(path) == [
        "1:1: give 'ranks: N' for real ranks, or 'simulate: true' for virtual workers"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: the file is empty: a sweep has at least a name"),
        ("[1]", "1:1: a sweep file is a mapping of keys, not a list"),
        ("name: a b\n", "1:1: required key 'base' is missing"),
        ("a: [", "1:5: not YAML: "),
    ],
)
def test_no_sweep(tmp_path: Path, text: str, message: str) -> None:
    assert refused(sweep_file(tmp_path, text, head=""))[0].startswith(message)


def test_a_base_that_is_not_there(tmp_path: Path) -> None:
    path = sweep_file(tmp_path, "")
    (tmp_path / "job.yaml").unlink()
    assert refused(path) == [
        f"2:7: base: {tmp_path}/job.yaml: cannot be read: No such file or directory"
    ]


def test_a_base_with_a_fault_says_so_at_the_base(tmp_path: Path) -> None:
    path = sweep_file(tmp_path, "seeds: 3")
    base = tmp_path / "job.yaml"
    base.write_text(base.read_text().replace("batch_size: 4", "batch_size: 0"))
    (said,) = refused(path)
    assert said.startswith(f"{base}:")
    assert said.endswith("train.batch_size: must be at least 1, not 0 (run seed=1, and 2 more)")


def test_head_is_valid() -> None:
    assert HEAD.count("\n") == 3
