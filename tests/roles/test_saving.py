"""Saving while training goes on: what is told when, and what an end in the middle leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from psopt.record import CheckpointStore, MetricsWriter, Timeline, Tree, read_metrics
from psopt.roles import saving
from psopt.roles.journal import Journal
from psopt.roles.saving import Saver
from tests.training import Watcher, configured, tiny, train


class Slow(CheckpointStore):
    """Saves when it is told to, and fails at the steps that it is told to."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.go, self.bad = threading.Event(), set[int]()

    def telling(self, warn: object) -> CheckpointStore:
        return self

    def save(self, step: int, tree: Tree) -> Path:
        assert self.go.wait(60)
        if step in self.bad:
            raise OSError(28, "No space left on device")
        return super().save(step, tree)


class Stage:
    """A saver with everything around it."""

    def __init__(self, folder: Path) -> None:
        self.watcher, self.metrics = Watcher(), MetricsWriter(folder / "metrics.jsonl")
        journal = Journal(self.metrics, Timeline(folder / "timeline.json", 0), self.watcher, 1)
        self.store = Slow(folder / "checkpoints", 2)
        self.saver = Saver(self.store, journal)

    def save(self, step: int) -> None:
        self.saver.save(step, (step, 0, 0), lambda: {"w": torch.ones(2), "step": step})

    def latest(self) -> int | None:
        latest = self.store.load_latest()
        return None if latest is None else latest[0]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    with stage.metrics:
        yield stage


def test_training_goes_on_meanwhile(stage: Stage) -> None:
    with stage.saver:
        stage.save(3)
        assert stage.saver.has((3, 0, 0))
        stage.saver.look()
        assert stage.latest() is None
        stage.store.go.set()
    assert stage.latest() == 3
    assert stage.saver.seconds > 0
    assert stage.watcher.warnings == []


def test_a_failure_is_told_once_and_saved_again(stage: Stage) -> None:
    stage.store.bad.add(3)
    stage.store.go.set()
    stage.save(3)
    thread = stage.saver.writer._thread
    assert thread is not None
    thread.join()
    stage.saver.look()
    (warning,) = stage.watcher.warnings
    assert warning.startswith("checkpoint at step 3 failed: ")
    assert "No space left" in warning
    assert not stage.saver.has((3, 0, 0))
    assert stage.saver.wait() == warning
    stage.store.bad.clear()
    stage.save(3)
    assert stage.saver.wait() is None
    assert stage.latest() == 3
    assert len(stage.watcher.warnings) == 1


def test_a_failure_is_told_by_the_next_save_and_by_the_end(stage: Stage) -> None:
    stage.store.bad |= {3, 5}
    stage.store.go.set()
    with stage.saver:
        for step in (2, 3, 4, 5):
            stage.save(step)
    assert [w.partition(" failed")[0] for w in stage.watcher.warnings] == [
        *("checkpoint at step 3", "checkpoint at step 5"),
    ]
    assert stage.latest() == 4


def test_an_exception_waits_for_a_save(stage: Stage) -> None:
    def fail() -> None:
        with stage.saver:
            stage.save(3)
            stage.store.go.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert stage.latest() == 3


def test_an_exception_does_not_wait_for_ever(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "_PATIENCE", 0.0)

    def fail() -> None:
        with stage.saver:
            stage.save(3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert stage.watcher.warnings == ["checkpoint at step 3: the run ends before it was written"]
    stage.store.go.set()
    assert stage.saver.wait() is None


def test_rows_are_on_the_disk_before_a_checkpoint_counts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be brought there makes the checkpoint fail; it would refer to missing rows."""
    stage.store.go.set()
    rows: list[int] = []
    path = stage.store.paths

    def sync(_: MetricsWriter) -> None:
        rows.append(len(read_metrics(stage.metrics._path)))
        assert path() == []
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(MetricsWriter, "sync", sync)
    stage.metrics.write({"kind": "step"})
    stage.save(1)
    assert "Input/output error" in str(stage.saver.wait())
    assert rows == [1]
    assert stage.latest() is None
    monkeypatch.undo()
    stage.save(1)
    assert stage.saver.wait() is None
    assert stage.latest() == 1


@pytest.mark.parametrize("scheme", ["bsp", "asp", "wasp"])
def test_checkpoints_hold_the_state_of_their_step(scheme: str, tmp_path: Path) -> None:
    """Every step is saved while the next ones change the parameters; each resumes to the same end."""
    section: dict[str, Any] = {"name": scheme}
    if scheme == "bsp":
        section["slots"] = 2
    config = configured(tiny(tmp_path), scheme=section, checkpoint={"every_steps": 1, "keep": 99})
    whole = train(config, tmp_path / "whole", workers=1)
    store = CheckpointStore(whole.run.checkpoints, 99)
    assert len(store.paths()) == whole.coordinator.progress.step
    for number, path in enumerate(store.paths()):
        tree = store.load(path)
        assert tree["progress"]["step"] == number + 1
        if scheme == "bsp":
            assert train(config, tmp_path / f"run{number}", tree=tree).sha == whole.sha
