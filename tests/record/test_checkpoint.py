from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from psopt.record import CheckpointError, CheckpointStore, CheckpointWarning, checkpoint_file
from psopt.record.files import temporary_for
from tests.permissions import permissions_hold


def tree(step: int) -> dict[str, Any]:
    return {"parameters": {"w": torch.full((50,), float(step))}, "step": step}


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep=3)


def test_nothing_yet(store: CheckpointStore) -> None:
    assert store.paths() == []
    assert store.load_latest() is None


def test_last_ones_are_kept(store: CheckpointStore) -> None:
    for step in (1, 9, 10, 100):
        path = store.save(step, tree(step))
        assert path == store.paths()[-1]
    names = [path.name for path in store.paths()]
    assert names == ["step-000000000009.h5", "step-000000000010.h5", "step-000000000100.h5"]
    latest = store.load_latest()
    assert latest is not None
    step, found = latest
    assert step == 100
    assert found["parameters"]["w"].tolist() == [100.0] * 50
    assert store.load(store.paths()[0])["step"] == 9


def test_header(store: CheckpointStore) -> None:
    path = store.save(1, tree(1))
    lines = path.read_bytes()[:512].rstrip(b"\0").decode().splitlines()
    assert lines[0] == "psopt checkpoint 1"
    assert lines[1:3] == ["step 1", "run "]
    assert lines[4] == f"bytes {path.stat().st_size - 512}"


def test_same_step_again_replaces(store: CheckpointStore) -> None:
    store.save(1, tree(1))
    path = store.save(1, tree(2))
    assert store.paths() == [path]
    assert store.load(path)["step"] == 2


def test_a_trial_leaves_nothing(store: CheckpointStore, tmp_path: Path) -> None:
    """And what a killed one left is removed by the next save."""
    saved = store.save(3, tree(3))
    store.rehearse(tree(4))
    assert list(saved.parent.iterdir()) == [saved]
    (saved.parent / "step-trial.h5").write_bytes(b"half")
    later = store.save(4, tree(4))
    assert sorted(saved.parent.iterdir()) == [saved, later]
    blocked = CheckpointStore(tmp_path / "file" / "checkpoints", keep=1)
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(CheckpointError, match="a trial before training was not saved"):
        blocked.rehearse(tree(1))


def test_truncated_newest_is_skipped_with_a_warning(store: CheckpointStore) -> None:
    store.save(1, tree(1))
    newest = store.save(2, tree(2))
    content = newest.read_bytes()
    for size in (0, 100, 512, 513, len(content) // 2, len(content) - 1):
        newest.write_bytes(content[:size])
        with pytest.warns(CheckpointWarning, match=r"step-000000000002\.h5: truncated"):
            latest = store.load_latest()
        assert latest is not None
        assert latest[0] == 1


def test_any_flipped_bit_is_found(store: CheckpointStore) -> None:
    path = store.save(1, tree(1))
    content = path.read_bytes()
    for place in [*range(0, 600, 7), *range(600, len(content), 97), len(content) - 1]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"step-000000000001\.h5"):
            store.load(path)
    path.write_bytes(content)
    assert store.load(path)["step"] == 1


def test_appended_bytes_are_found(store: CheckpointStore) -> None:
    path = store.save(1, tree(1))
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(CheckpointError, match="damaged"):
        store.load(path)


def test_all_damaged_is_an_error_not_a_fresh_start(store: CheckpointStore) -> None:
    store.save(1, tree(1)).write_bytes(b"")
    with (
        pytest.warns(CheckpointWarning),
        pytest.raises(CheckpointError, match="none of the 1 checkpoints"),
    ):
        store.load_latest()


def test_other_files(store: CheckpointStore, tmp_path: Path) -> None:
    other = tmp_path / "other.h5"
    other.write_bytes(b"x" * 1000)
    with pytest.raises(CheckpointError, match="not a psopt checkpoint"):
        store.load(other)
    other.write_bytes(b"psopt checkpoint 2\n" + b"x" * 1000)
    with pytest.raises(CheckpointError, match="newer psopt"):
        store.load(other)
    with pytest.raises(CheckpointError, match="No such file"):
        store.load(tmp_path / "missing.h5")


def test_save_after_a_damaged_newer_one(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    CheckpointStore(tmp_path, keep=2).save(10, tree(10))
    CheckpointStore(tmp_path, keep=2).save(20, tree(20)).write_bytes(b"")
    path = store.save(15, tree(15))
    assert store.paths() == [path]
    latest = store.load_latest()
    assert latest is not None
    assert latest[0] == 15


def test_leftovers_are_removed_at_the_next_save(store: CheckpointStore, tmp_path: Path) -> None:
    path = store.save(1, tree(1))
    leftover = path.with_name(".step-000000000002.h5.123.tmp")
    leftover.write_bytes(b"half")
    note = path.with_name("notes.txt")
    note.write_text("mine")
    assert store.paths() == [path]
    newer = store.save(2, tree(2))
    assert sorted(path.parent.iterdir()) == [note, path, newer]


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    store = CheckpointStore(tmp_path / "checkpoints", keep=1)
    with pytest.raises(CheckpointError, match=r"step-000000000001\.h5.*File exists"):
        store.save(1, tree(1))


@pytest.mark.parametrize("way", ["read-only", "temporary", "target"])
def test_unwritable_directory_keeps_what_is_there(store: CheckpointStore, way: str) -> None:
    first = store.save(1, tree(1))
    if way == "read-only":
        first.parent.chmod(0o500)
    else:
        second = first.with_name("step-000000000002.h5")
        blocked = temporary_for(second) if way == "temporary" else second
        (blocked / "something").mkdir(parents=True)
    with (
        permissions_hold(),
        pytest.raises(CheckpointError, match=r"step-000000000002\.h5: step 2 was not saved"),
    ):
        store.save(2, tree(2))
    first.parent.chmod(0o700)
    assert store.load(first)["step"] == 1
    assert [path for path in first.parent.iterdir() if path.is_file()] == [first]


def test_medium_that_changes_what_is_written(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.save(1, tree(1))
    wanted = torch.ones(3)
    put = checkpoint_file._Medium.write

    def flipped(medium: Any, data: memoryview) -> int:
        given = bytes(data)
        return put(medium, given.replace(wanted.numpy().tobytes(), bytes(12)))  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint_file._Medium, "write", flipped)
    with pytest.raises(CheckpointError, match="what was read back differs"):
        store.save(2, {"w": wanted})
    monkeypatch.undo()
    assert list(first.parent.iterdir()) == [first]


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_failure_at_the_end_of_a_save(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    first = store.save(1, tree(1))

    def fail(*_arguments: object) -> None:
        raise OSError(5, "Input/output error")

    if failing == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(CheckpointError, match=r"step-000000000002.*Input/output error"):
        store.save(2, tree(2))
    monkeypatch.undo()
    assert list(first.parent.iterdir()) == [first]
    assert store.load(first)["step"] == 1


def test_old_one_that_cannot_be_removed_does_not_end_the_run(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    stuck = tmp_path / "step-000000000001.h5"
    stuck.mkdir()
    with pytest.warns(CheckpointWarning, match=r"step-000000000001\.h5: an old checkpoint"):
        newest = store.save(2, tree(2))
    assert store.load(newest)["step"] == 2


def test_keep_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep is 0"):
        CheckpointStore(tmp_path, keep=0)
