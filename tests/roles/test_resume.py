"""Going on from a checkpoint, on virtual workers. `tests/mpi/test_resume.py` does it to killed ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from psopt.data.plan import BatchPlan, Ticket
from psopt.record import CheckpointStore, RunDirectory, read_metrics
from tests.training import Trained, configured, tiny, train

EVERYTHING: dict[str, Any] = {
    "model": {"factory": "tests.zoo:normed", "kwargs": {"dropout": 0.3}},
    "optimizer": {
        "name": "Adam",
        "lr": 0.02,
        "groups": [{"match": "*.bias", "lr": 0.1, "betas": [0.5, 0.9]}],
    },
    "scheduler": {"name": "CosineAnnealingLR", "T_max": 20},
    "train": {"epochs": 4, "batch_size": 4, "clip_norm": 0.5},
}
TICKETS = [Ticket(epoch, k) for epoch in range(4) for k in range(len(BatchPlan(1, 0, 22, 4)))]


def job(tmp_path: Path, scheme: dict[str, Any], **changes: Any) -> Any:
    return configured(tiny(tmp_path, rows=22), **{"scheme": scheme, **EVERYTHING, **changes})


def at(config: Any, steps: int) -> Any:
    """The same job, stopped after so many steps."""
    return config.model_copy(update={"stop": config.stop.model_copy(update={"steps": steps})})


@pytest.mark.parametrize("exchange", ["server", "collective"])
@pytest.mark.parametrize("step", [1, 4, 5])
def test_synchronous_resume_is_bitwise(exchange: str, step: int, tmp_path: Path) -> None:
    """In the middle of an epoch, at its end and just after, on more and on fewer workers."""
    config = job(tmp_path, {"name": "bsp", "exchange": exchange, "slots": 2})
    whole = train(config, tmp_path / "whole", workers=2)
    for workers in (1, 3):
        folder = tmp_path / f"run{workers}"
        first = train(at(config, step), folder, workers=2)
        second = train(config, folder, workers=workers, tree=first.saved())
        assert second.sha == whole.sha
        assert sorted(first.applied + second.applied) == TICKETS
        for name, value in whole.saved()["buffers"].items():
            assert torch.equal(second.saved()["buffers"][name], value), name
        figures = ("step", "loss", "accuracy", "version", "samples")
        rows = [[row[key] for key in figures] for row in second.rows("step")]
        assert rows == [[row[key] for key in figures] for row in whole.rows("step")]


def test_resume_again_and_again(tmp_path: Path) -> None:
    """A resume at every step, the exchange changing each time."""
    config = job(tmp_path, {"name": "bsp", "slots": 3})
    whole = train(config, tmp_path / "whole", workers=3)
    tree, done = None, None
    for step in range(1, whole.coordinator.progress.step + 1):
        exchange = "collective" if step % 2 else "server"
        turned = job(tmp_path, {"name": "bsp", "slots": 3, "exchange": exchange})
        done = train(at(turned, step), tmp_path / "run", workers=1 + step % 3, tree=tree)
        tree = done.saved()
    assert done is not None
    assert done.sha == whole.sha


def test_slots_outlive_the_workers(tmp_path: Path) -> None:
    """Slots are those of the start, whatever the number of workers that go on."""
    config = job(tmp_path, {"name": "bsp"})
    whole = train(config, tmp_path / "whole", workers=3)
    first = train(at(config, 2), tmp_path / "run", workers=3)
    second = train(config, tmp_path / "run", workers=2, tree=first.saved())
    assert second.coordinator.state.slots == 3
    assert second.sha == whole.sha


@pytest.mark.parametrize("scheme", ["asp", "wasp"])
@pytest.mark.parametrize("step", [1, 6, 17])
def test_asynchronous_resume_repeats_and_loses_nothing(
    scheme: str, step: int, tmp_path: Path
) -> None:
    """Tickets that were open at the checkpoint are issued again, and first."""
    section = {"name": "asp"} if scheme == "asp" else {"name": "wasp", "weight_on": "rate"}
    config = job(tmp_path, section)
    first = train(at(config, step), tmp_path / "run", workers=4)
    tree = first.saved()
    again = [Ticket(*pair) for pair in tree["tickets"]["again"]]
    assert len(again) == 3
    second = train(config, tmp_path / "run", workers=3, tree=tree)
    issued = [given.task.ticket for given in second.crew.given if hasattr(given.task, "ticket")]
    assert issued[: len(again)] == again
    assert sorted(first.applied + second.applied) == TICKETS
    samples = [row["samples"] for row in second.rows("step")]
    assert samples[-1] == 4 * 22
    assert len(samples) == len(set(samples)) == len(TICKETS)


def test_wasp_resumed_at_6_syncs_at_8(tmp_path: Path) -> None:
    """Adam's moments, the position of the schedule and the sync counter survive."""
    scheme = {"name": "wasp", "weight_on": "rate", "sync_every": 4}
    config = job(tmp_path, scheme)
    first = train(at(config, 6), tmp_path / "run", workers=1)
    assert first.coordinator.state.next_sync == 8
    second = train(at(config, 7), tmp_path / "run", workers=1, tree=first.saved())
    assert second.coordinator.state.next_sync == 8
    third = train(at(config, 8), tmp_path / "run", workers=1, tree=second.saved())
    assert third.coordinator.state.next_sync == 12
    whole = train(at(config, 8), tmp_path / "whole", workers=1)
    assert third.sha == whole.sha
    ours, theirs = third.saved()["optimizer"], whole.saved()["optimizer"]
    assert ours["scheduler"] == theirs["scheduler"]
    assert ours["scheduler"]["last_epoch"] == 8
    for index, moments in theirs["state"].items():
        for name, value in moments.items():
            assert torch.equal(torch.as_tensor(ours["state"][index][name]), torch.as_tensor(value))


def test_wasp_resumed_between_boundary_and_barrier(tmp_path: Path) -> None:
    """The checkpoint lies while open replies are drained: all start at one version."""
    config = job(tmp_path, {"name": "wasp", "weight_on": "rate", "sync_every": 4})
    first = train(at(config, 5), tmp_path / "run", workers=3)
    assert first.saved()["scheme"] == {"next_sync": 8, "draining": True}
    second = train(config, tmp_path / "run", workers=3, tree=first.saved())
    assert [given.task.version for given in second.crew.given[:3]] == [5, 5, 5]
    assert sorted(first.applied + second.applied) == TICKETS


def test_figures_go_on(tmp_path: Path) -> None:
    """Clock, staleness and seconds of the workers count over all attempts."""
    config = job(tmp_path, {"name": "asp"})
    first = train(at(config, 10), tmp_path / "run", workers=4)
    before = first.coordinator.journal.state()
    second = train(config, tmp_path / "run", workers=2, tree=first.saved())
    progress, journal = second.coordinator.progress, second.coordinator.journal
    assert progress.step == len(TICKETS)
    assert journal.staleness.total() == len(TICKETS)
    assert max(journal.staleness) >= 3
    assert set(journal.worker_seconds) == {0, 1, 2, 3}
    for worker, totals in before["worker_seconds"]:
        assert journal.worker_seconds[worker]["compute"] >= totals["compute"]
    seconds = [row["seconds"] for row in second.rows("step")]
    assert seconds == sorted(seconds)
    assert [row["step"] for row in second.rows("evaluation")][-1] == len(TICKETS)


def test_rows_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    config = job(tmp_path, {"name": "bsp", "slots": 1}, checkpoint={"every_steps": 4})
    train(at(config, 10), tmp_path / "run")
    store = CheckpointStore(RunDirectory(tmp_path / "run").checkpoints, 3)
    store.paths()[-1].unlink()  # as if the run had been killed after step 10, before its save
    latest = store.load_latest()
    assert latest is not None
    assert latest[0] == 8
    done = train(config, tmp_path / "run", tree=latest[1])
    assert [row["step"] for row in done.rows("step")] == list(range(1, len(TICKETS) + 1))
    assert len({row["step"] for row in done.rows("evaluation")}) == len(done.rows("evaluation"))


def test_resume_of_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    config = job(tmp_path, {"name": "asp"})
    whole = train(config, tmp_path / "run")
    again = train(config, tmp_path / "run", tree=whole.saved())
    assert (again.status, again.reason, again.sha) == ("completed", "epochs", whole.sha)
    assert again.applied == []
    assert again.coordinator.progress == whole.coordinator.progress


LAST = {Ticket(3, k) for k in range(3, 6)}


@pytest.mark.parametrize("name", ["bsp", "collective", "asp"])
def test_updates_refused_after_the_last_step_are_kept(name: str, tmp_path: Path) -> None:
    """A checkpoint follows each step; those after it were all refused, and are not repeated."""
    section = {"name": "asp"} if name == "asp" else {"name": "bsp", "slots": 1}
    if name == "collective":
        section["exchange"] = "collective"
    config = job(tmp_path, section, checkpoint={"every_steps": 1}, on_bad_update="skip")
    done = train(config, tmp_path / "run", workers=1, bad=LAST)
    assert (done.status, done.coordinator.progress.refused) == ("completed", 3)
    rows = read_metrics(done.run.metrics_path)
    again = train(config, tmp_path / "run", tree=done.saved())
    assert again.coordinator.progress == done.coordinator.progress
    assert again.tickets.state() == done.tickets.state()
    assert (again.tickets.samples, again.tickets.refused_samples) == (4 * 22 - 10, 10)
    assert (again.sha, again.applied) == (done.sha, [])
    assert read_metrics(again.run.metrics_path) == rows


def test_evaluation_after_the_last_checkpoint_is_kept(tmp_path: Path) -> None:
    config = job(
        tmp_path,
        {"name": "bsp", "slots": 2},
        checkpoint={"every_steps": 1},
        evaluate={"every_epochs": 100},
    )
    done = train(config, tmp_path / "run")
    again = train(config, tmp_path / "run", tree=done.saved())
    assert len(done.rows("evaluation")) == len(again.rows("evaluation")) == 1
    assert again.coordinator.progress == done.coordinator.progress


def test_rows_of_updates_refused_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    """A run that is killed after them: they are made again, and recorded once."""
    config = job(
        tmp_path, {"name": "bsp", "slots": 1}, checkpoint={"every_steps": 1}, on_bad_update="skip"
    )
    bad = {Ticket(0, 0), *LAST}
    whole = train(config, tmp_path / "whole", bad=bad)
    stopped = at(config, 20)
    first = train(stopped, tmp_path / "run", bad=bad)
    tree = first.saved()
    assert (tree["progress"]["step"], tree["progress"]["refused"]) == (20, 1)
    train(config, tmp_path / "run", tree=tree, bad=bad)  # and is killed before its end
    done = train(config, tmp_path / "run", tree=tree, bad=bad)
    assert done.coordinator.progress.refused == whole.coordinator.progress.refused == 4
    for kind in ("refused", "step"):
        assert [(row["step"], row["epoch"]) for row in done.rows(kind)] == [
            (row["step"], row["epoch"]) for row in whole.rows(kind)
        ]


def test_more_epochs(tmp_path: Path) -> None:
    config = job(tmp_path, {"name": "bsp", "slots": 2})
    longer = config.model_copy(update={"train": config.train.model_copy(update={"epochs": 6})})
    whole = train(longer, tmp_path / "whole")
    first = train(config, tmp_path / "run")
    assert train(longer, tmp_path / "run", tree=first.saved()).sha == whole.sha


@pytest.fixture
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the disk had still been well when the run began."""
    monkeypatch.setattr(CheckpointStore, "rehearse", lambda store, tree: None)


def blocked(tmp_path: Path) -> Trained:
    """A run whose checkpoints cannot be written: a file is where their directory should be."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "checkpoints").write_text("not a directory")
    config = job(tmp_path, {"name": "bsp", "slots": 2}, checkpoint={"every_steps": 4})
    return train(config, folder)


def test_unwritable_checkpoints_are_found_before_training(tmp_path: Path) -> None:
    done = blocked(tmp_path)
    assert done.status == "failed"
    assert "a trial before training was not saved" in done.reason
    assert done.coordinator.progress.step == 0


def test_unwritable_checkpoints_are_loud_and_training_goes_on(
    tmp_path: Path, no_trial: None
) -> None:
    done = blocked(tmp_path)
    assert done.status == "failed"
    assert done.reason.startswith("checkpoint at step 12 failed: ")
    assert done.coordinator.progress.step == 12
    steps = [4, 8, 12, 12]  # once more at the end: space may have been made
    assert len(done.watcher.warnings) == len(steps)
    for step, warning in zip(steps, done.watcher.warnings, strict=True):
        assert f"checkpoint at step {step} failed" in warning
        assert "check the disk's space and permissions" in warning
    whole = train(done.coordinator.config, tmp_path / "whole")
    assert done.sha == whole.sha


def test_another_target_is_reached_when_it_is(tmp_path: Path) -> None:
    """And one that had been passed before counts from the checkpoint on."""
    data, long = tiny(tmp_path), {"epochs": 1000, "batch_size": 4}

    def job(target: float | None, steps: int | None = None) -> Any:
        stop = {"objective": target, "steps": steps}
        scheme = {"name": "dane", "mu": 1.0}
        return configured(data, scheme=scheme, optimizer=None, train=long, stop=stop)

    whole = train(job(0.4), tmp_path / "whole")
    early = train(job(0.7), tmp_path / "run")
    assert early.coordinator.progress.seconds_to_target is not None
    later = train(job(0.4), tmp_path / "run", tree=early.saved())
    for done in (whole, later):
        assert done.reason == "objective"
        assert done.coordinator.progress.seconds_to_target == done.rows("step")[-1]["seconds"]
    assert later.coordinator.progress.step == whole.coordinator.progress.step
    short = train(job(None, steps=early.coordinator.progress.step + 1), tmp_path / "short")
    assert short.coordinator.progress.seconds_to_target is None
    again = train(job(0.7), tmp_path / "short", tree=short.saved())
    assert again.reason == "objective"
    assert again.coordinator.progress.seconds_to_target == short.coordinator.progress.seconds


@pytest.mark.parametrize("name", ["dane", "giant", "sandblaster", "cg"])
def test_a_tolerance_that_is_met_already(name: str, tmp_path: Path) -> None:
    """By a run that goes on with a wider one: there is nothing to do."""
    data, long = tiny(tmp_path), {"epochs": 1000, "batch_size": 4}

    def job(tolerance: float, steps: int | None = None) -> Any:
        scheme = {"name": name, "gradient_tolerance": tolerance}
        return configured(
            data, scheme=scheme, optimizer=None, loss={"l2": 0.1}, train=long, stop={"steps": steps}
        )

    early = train(job(1e-9, 6), tmp_path / "run")
    again = train(job(0.9), tmp_path / "run", tree=early.saved())
    assert (again.status, again.reason.partition(" ")[0]) == ("completed", "converged")
    assert again.coordinator.progress.step == 6
    assert again.sha == early.sha
