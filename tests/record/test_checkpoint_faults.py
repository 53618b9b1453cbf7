"""A save that is killed, or fails, at every single one of the calls that it makes."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from psopt.record import CheckpointStore, CheckpointWriter, MetricsWriter, Tree
from tests.record.faults import DONE, REFUSED, Disk, child

KEEP = 2
LEFT = ".step-000000000003.h5.1.tmp"


def tree(step: int) -> Tree:
    """Enough for several large writes and several small ones."""
    return {
        "parameters": {"w": torch.full((5000,), float(step)), "b": torch.full((9,), float(step))},
        "scheme": {"open": [[0, step]]},
        "step": step,
    }


def save(folder: Path) -> None:
    """As a run does it, in a thread."""
    store = CheckpointStore(folder / "checkpoints", KEEP, lambda text: None)
    writer, metrics = CheckpointWriter(store), MetricsWriter(folder / "metrics.jsonl")
    writer.begin(3, tree(3), metrics.sync)
    writer.end()


def rehearse(folder: Path) -> None:
    CheckpointStore(folder / "checkpoints", KEEP, lambda text: None).rehearse(tree(9))


def begun(folder: Path) -> None:
    """A run with two checkpoints, and what a killed save has left."""
    store = CheckpointStore(folder / "checkpoints", KEEP)
    store.save(1, tree(1))
    store.save(2, tree(2))
    (folder / "checkpoints" / LEFT).write_bytes(b"half")
    (folder / "metrics.jsonl").write_text('{"kind": "step"}\n')


def new(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text("")


class Case:
    """What happens to what, and which checkpoints may be there afterwards."""

    def __init__(
        self,
        prepare: Callable[[Path], None],
        act: Callable[[Path], None],
        before: int | None,
        after: int | None,
    ) -> None:
        self.prepare, self.act, self.before, self.after = prepare, act, before, after

    def folder(self, parent: Path, name: str) -> Path:
        folder = parent / name
        folder.mkdir()
        self.prepare(folder)
        return folder

    def check(self, folder: Path, *, may_be_new: bool) -> None:
        """A whole checkpoint is there, the next save works, and leaves nothing but checkpoints."""
        warnings: list[str] = []
        store = CheckpointStore(folder / "checkpoints", KEEP, warnings.append)
        latest = store.load_latest()
        step = None if latest is None else latest[0]
        assert warnings == []
        assert step == self.before or (may_be_new and step == self.after)
        if latest is not None:
            self.same(latest[1], tree(latest[0]))
        store.save(4, tree(4))
        assert warnings == []
        assert sorted((folder / "checkpoints").iterdir()) == store.paths()
        names = [path.name for path in store.paths()]
        assert names[-1] == "step-000000000004.h5"
        assert len(names) == (1 if step is None else KEEP)
        for path in store.paths():
            self.same(store.load(path), tree(int(path.stem.removeprefix("step-"))))

    def same(self, found: Tree, wanted: Tree) -> None:
        assert found["step"] == wanted["step"]
        for name, value in wanted["parameters"].items():
            assert torch.equal(found["parameters"][name], value)


CASES = {
    "save": Case(begun, save, 2, 3),
    "first": Case(new, save, None, 3),
    "trial": Case(begun, rehearse, 2, 2),
    "first trial": Case(new, rehearse, None, None),
}


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process leaves what it has written to the system; only a power cut does not."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def counted(case: Case, folder: Path) -> list[str]:
    """The calls that are made where nothing goes wrong."""
    status, calls = child(Disk(), partial(case.act, case.folder(folder, "counted")))
    assert status == DONE
    return calls


def test_all_kinds_of_calls_are_made(tmp_path: Path) -> None:
    """Else the tests below would prove less than they say."""
    calls = counted(CASES["first"], tmp_path)
    kinds = {"mkdir", "open", "write", "flush", "fsync", "replace", "fsync of a directory"}
    assert kinds <= set(calls)
    assert calls.count("write") > 8
    calls = [call for call in calls if call != "flush"]  # a file that is closed makes one, too
    saved = calls.index("replace")
    assert calls[saved - 1 : saved + 2] == ["fsync", "replace", "fsync of a directory"]
    assert calls.index("fsync") < calls.index("open")  # the metrics, before anything is written
    assert calls.index("mkdir") + 1 == calls.index("fsync of a directory")


def test_old_ones_are_removed_last(tmp_path: Path) -> None:
    calls = [call for call in counted(CASES["save"], tmp_path) if call != "flush"]
    assert calls[calls.index("replace") :] == ["replace", "fsync of a directory", "unlink"]


def test_killed_at_every_call(case: Case, tmp_path: Path) -> None:
    calls = counted(case, tmp_path)
    for number in range(1, len(calls) + 1):
        folder = case.folder(tmp_path, str(number))
        status, _ = child(Disk(number), partial(case.act, folder))
        assert status == -signal.SIGKILL
        case.check(folder, may_be_new="replace" in calls[: number - 1])


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_failing_at_every_call(case: Case, error: int, tmp_path: Path) -> None:
    """What fails is told, but for an old checkpoint that cannot be removed: that is warned of."""
    calls = counted(case, tmp_path)
    for number, call in enumerate(calls, 1):
        folder = case.folder(tmp_path, str(number))
        status, _ = child(Disk(number, error), partial(case.act, folder))
        replaced = "replace" in calls[: number - 1]
        pruning = replaced and call == "unlink" and case.act is not rehearse
        assert status == (DONE if pruning else REFUSED), (number, call)
        left = {path.name for path in (folder / "checkpoints").glob(".step-*")}
        assert left <= {LEFT}, (number, call)
        case.check(folder, may_be_new=replaced)
