"""The thread that writes checkpoints: what it saves, what it says, and what the caller may do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from psopt.record import CheckpointError, CheckpointStore, CheckpointWriter, Tree
from psopt.record.tree_copy import TreeCopier


def nothing() -> None:
    pass


def state() -> Tree:
    return {"w": torch.arange(6.0), "scheme": {"open": [[0, 1], [0, 2]]}, "step": 1}


class Gate:
    """Holds a save up until it is told to go on, or fails it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.reached, self.opened, self.error = threading.Event(), threading.Event(), error

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(60)
        if self.error is not None:
            raise self.error


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", 2)


def test_what_is_saved_is_what_was_there_at_the_beginning(store: CheckpointStore) -> None:
    """The caller changes everything while the thread has not written a byte yet."""
    writer, tree, gate = CheckpointWriter(store), state(), Gate()
    writer.begin(1, tree, gate)
    assert gate.reached.wait(60)
    assert writer.open
    assert writer.busy
    assert writer.end(0.0) is None
    tree["w"].zero_()
    tree["scheme"]["open"][0].append(9)
    tree["scheme"]["more"] = 1
    assert store.paths() == []
    gate.opened.set()
    path = writer.end()
    assert store.paths() == [path]
    assert not writer.open
    latest = store.load_latest()
    assert latest is not None
    assert latest[1]["w"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert latest[1]["scheme"] == {"open": [[0, 1], [0, 2]]}
    assert writer.cpu_seconds > 0
    assert writer.end() is None


def test_one_after_the_other(store: CheckpointStore) -> None:
    writer, tree = CheckpointWriter(store), state()
    for step in range(1, 6):
        tree["w"].fill_(step)
        writer.begin(step, tree, nothing)
        with pytest.raises(AssertionError, match="was not ended"):
            writer.begin(step, tree, nothing)
        writer.end()
    assert [store.load(path)["w"][0].item() for path in store.paths()] == [4.0, 5.0]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), CheckpointError("no")])
def test_what_must_come_first_has_failed(store: CheckpointStore, error: Exception) -> None:
    """Metrics that are not on the disk: the checkpoint that refers to them does not count."""
    writer, gate = CheckpointWriter(store), Gate(error)
    gate.opened.set()
    writer.begin(1, state(), gate)
    with pytest.raises(CheckpointError, match=r"No space left|^no$"):
        writer.end()
    assert store.paths() == []
    writer.begin(1, state(), nothing)
    assert writer.end() is not None


def test_a_full_disk_is_told_by_the_end(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    writer = CheckpointWriter(CheckpointStore(tmp_path / "checkpoints", 2))
    writer.begin(1, state(), nothing)
    with pytest.raises(CheckpointError, match="File exists"):
        writer.end()


def test_errors_that_nobody_expects_are_raised_too(store: CheckpointStore) -> None:
    writer, gate = CheckpointWriter(store), Gate(ZeroDivisionError("odd"))
    gate.opened.set()
    writer.begin(1, state(), gate)
    with pytest.raises(ZeroDivisionError, match="odd"):
        writer.end()


@pytest.mark.parametrize(
    "value", [(1, 2), {"a": [{1: 2}]}, torch.ones(2).to_sparse()], ids=["tuple", "key", "sparse"]
)
def test_what_cannot_be_kept_is_told_by_the_beginning(store: CheckpointStore, value: Any) -> None:
    writer = CheckpointWriter(store)
    with pytest.raises(CheckpointError, match=r"step 1 was not saved: tree\['x'\]"):
        writer.begin(1, {"x": value}, nothing)
    assert not writer.open


def test_warnings_come_in_the_callers_thread(tmp_path: Path) -> None:
    told: list[tuple[str, threading.Thread]] = []
    store = CheckpointStore(
        tmp_path, 1, lambda text: told.append((text, threading.current_thread()))
    )
    (tmp_path / "step-000000000001.h5").mkdir()
    writer = CheckpointWriter(store)
    writer.begin(2, state(), nothing)
    writer.end()
    ((text, thread),) = told
    assert "an old checkpoint was not removed" in text
    assert thread is threading.current_thread()


def test_no_thread(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    writer = CheckpointWriter(store)
    with pytest.raises(CheckpointError, match="can't start new thread"):
        writer.begin(1, state(), nothing)
    assert not writer.open


MAKERS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.randn(3, 4),
    "transposed": lambda: torch.randn(3, 4).t(),
    "scalar": lambda: torch.tensor(2),
    "empty": lambda: torch.empty(0, 3),
    "bfloat16": lambda: torch.randn(5).bfloat16(),
    "float8": lambda: torch.randn(5).to(torch.float8_e4m3fn),
    "conjugate": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "expanded": lambda: torch.randn(1).expand(4),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_copies_of_tensors(kind: str) -> None:
    copier = TreeCopier()
    first, second = MAKERS[kind](), MAKERS[kind]()
    copy = copier.copy({"a": {"b": first}})["a"]["b"]
    assert (copy.dtype, copy.shape) == (first.dtype, first.shape)
    assert torch.equal(bits(copy), bits(first))
    place = copy.data_ptr()
    again = copier.copy({"a": {"b": second}})["a"]["b"]
    assert torch.equal(bits(again), bits(second))
    assert again.data_ptr() == place
    assert again.data_ptr() != second.data_ptr() or not again.numel()


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)


def test_memory_follows_the_tree() -> None:
    """Other shapes get other memory, and what is not wanted any more is freed."""
    copier = TreeCopier()
    copier.copy({"a": torch.ones(3), "b": torch.ones(2)})
    copied = copier.copy({"a": torch.ones(4)})
    assert copied["a"].tolist() == [1.0] * 4
    assert list(copier._kept) == ["tree['a']"]
