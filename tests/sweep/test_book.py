"""Which runs a call is to run, and in whose directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from psopt.record import Ended, RunDirectory, State, SweepDirectory, standing_of, write_ended
from psopt.sweep.book import Book, Only, SweepError, counted
from psopt.sweep.local import Local
from psopt.sweep.plan import plan
from psopt.sweep.status import exit_status, read_status, status_json, status_text
from tests.commands import call, no_rank, refused
from tests.sweep.making import planned, sweep_file

__all__ = ["no_rank"]
FIVE = "seeds: 5\n"


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """Five runs: done, failed, stopped, not started, unknown."""
    book = Book(planned(tmp_path / "files", FIVE), SweepDirectory(tmp_path / "sweep"))
    book.prepare(book.chosen(book.standings(), Only.MISSING, None))
    done, failed, stopped, _, unknown = (
        RunDirectory(book.directory.run_path(run.id)) for run in book.plan.runs
    )
    for run in (done, failed, stopped, unknown):
        run.write_config("name: x\n")
    figures = {"test_accuracy": 0.5, "seconds": 2.0, "steps": 4}
    done.write_summary({"status": "completed", "reason": "epochs", **figures})
    failed.write_summary({"status": "failed", "reason": "worker 1 raised"})
    write_ended(stopped.path, Ended(143, stopped=True))
    unknown.environment_path.write_text('{"hostname": "elsewhere"}')
    return book


def seeds(book: Book, only: Only, limit: int | None = None) -> list[int]:
    chosen = book.chosen(book.standings(), only, limit)
    return [each.run.assignment["seed"] for each in chosen]


def test_only(book: Book) -> None:
    assert seeds(book, Only.MISSING) == [3, 4]
    assert seeds(book, Only.FAILED) == [2]
    assert seeds(book, Only.ALL) == [2, 3, 4, 5]


def test_limit(book: Book) -> None:
    assert seeds(book, Only.ALL, 2) == [2, 3]


def test_what_was_begun_goes_on(book: Book) -> None:
    failed, _, fresh, _ = book.chosen(book.standings(), Only.ALL, None)
    assert failed.arguments(None) == ["run", "--resume", str(failed.path), "--simulate"]
    job = str(fresh.path / "job.yaml")
    assert fresh.arguments(None) == ["run", job, "--out", str(fresh.path), "--simulate"]
    assert failed.arguments(3)[-2:] == ["-n", "3"]


def test_what_another_has_begun_is_left_to_it(book: Book) -> None:
    todo = book.chosen(book.standings(), Only.MISSING, None)
    told: list[tuple[int, State]] = []
    hold = RunDirectory(todo[0].path).hold()
    RunDirectory(todo[1].path).write_summary({"status": "completed"})
    local = Local(
        None, 2, lambda each, now, _: told.append((each.run.assignment["seed"], now.state))
    )
    local.run(todo)
    hold.release()
    assert told == [(3, State.RUNNING), (4, State.DONE)]
    assert not (todo[0].path / "output.log").exists()


def test_runs_beside_each_other_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads = [
        Local(ranks, width, print)._threads() for ranks, width in ((None, 1), (None, 4), (3, 2))
    ]
    assert threads == [{}, {"OMP_NUM_THREADS": "4"}, {"OMP_NUM_THREADS": "2"}]
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert Local(None, 4, print)._threads() == {}


def test_directories_are_made_before_the_runs(book: Book) -> None:
    for run in book.plan.runs:
        path = book.directory.run_path(run.id)
        assert path.parent.name == run.id[:2]
        assert (path / "job.yaml").is_file()
        assert (path / "assignment.json").is_file()


def test_another_base_is_refused(book: Book, tmp_path: Path) -> None:
    book.check()
    changed = planned(tmp_path / "files", FIVE, train={"epochs": 9, "batch_size": 4})
    with pytest.raises(SweepError, match="its runs are of another base job") as caught:
        Book(changed, book.directory).check()
    assert "train is {epochs: 9, batch_size: 4" in str(caught.value)
    assert "and was {epochs: 1, batch_size: 4" in str(caught.value)


def test_a_base_may_be_mended_before_a_run_has_begun(book: Book, tmp_path: Path) -> None:
    for run in book.plan.runs:
        (book.directory.run_path(run.id) / "config.yaml").unlink(missing_ok=True)
    changed = planned(tmp_path / "files", FIVE, train={"epochs": 9, "batch_size": 4})
    mended = Book(changed, book.directory)
    mended.check()
    todo = mended.chosen(mended.standings(), Only.ALL, 1)
    mended.prepare(todo)
    assert "epochs: 9" in (todo[0].path / "job.yaml").read_text()
    assert book.directory.read().base["train"]["epochs"] == 9


def test_a_directory_of_something_else_is_refused(book: Book, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(SweepError, match="it is no sweep's directory, and not empty"):
        Book(book.plan, SweepDirectory(tmp_path / "other")).check()


def test_counted() -> None:
    states = [State.DONE, State.DONE, State.FAILED]
    assert counted(states) == "2 done, 1 failed, 0 running, 0 missing"
    assert counted([State.UNKNOWN]) == "0 done, 0 failed, 0 running, 0 missing, 1 unknown"


def test_exit_status() -> None:
    assert exit_status([State.DONE, State.DONE]) == 0
    assert exit_status([State.DONE, State.RUNNING, State.FAILED]) == 1
    for state in (State.RUNNING, State.MISSING, State.UNKNOWN):
        assert exit_status([State.DONE, state]) == 3


def test_status_of_a_sweep(book: Book) -> None:
    found = read_status(book.directory.path)
    ids = [run.id for run in book.plan.runs]
    failed = book.directory.run_path(ids[1])
    assert status_text(found).splitlines() == [
        f"done     {ids[0]}  seed=1  test accuracy 50.00 %, 2 s of training, ended by epochs",
        f"failed   {ids[1]}  seed=2",
        "    worker 1 raised",
        f"    log: {failed}/log.txt",
        f"missing  {ids[2]}  seed=3  stopped before its end",
        f"missing  {ids[3]}  seed=4  not started",
        f"unknown  {ids[4]}  seed=5  no outcome: it runs on elsewhere, or was killed there",
        "rates: 1 done, 1 failed, 0 running, 2 missing, 1 unknown",
    ]
    as_json = status_json(found)
    assert as_json["counts"] == {
        "done": 1,
        "failed": 1,
        "blocked": 0,
        "running": 0,
        "queued": 0,
        "missing": 2,
        "unknown": 1,
    }
    assert as_json["runs"][1]["reason"] == "worker 1 raised"
    assert as_json["runs"][0]["test_accuracy"] == 0.5


def test_status_of_a_run(book: Book) -> None:
    paths = [book.directory.run_path(run.id) for run in book.plan.runs]
    assert call("status", paths[0])[0] == 0
    status, out, _ = call("status", paths[1])
    assert status == 1
    assert "worker 1 raised" in out
    assert call("status", paths[3])[0] == 3
    assert standing_of(paths[3]).state is State.MISSING


def test_status_of_nothing(tmp_path: Path) -> None:
    assert "not a run directory" in refused("status", tmp_path)
    assert "no such directory" in refused("status", tmp_path / "none")


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    path = sweep_file(tmp_path / "files", FIVE)
    out = tmp_path / "out"
    status, said, _ = call("sweep", path, "--dry-run", "--limit", "2", "--out", out)
    ids = [run.id for run in plan(path).runs]
    assert status == 0
    assert said.splitlines() == [
        f"rates: 5 runs in {out}: 0 done, 0 failed, 0 running, 5 missing",
        f"  {ids[0]}  seed=1  starts: not started",
        f"  {ids[1]}  seed=2  starts: not started",
        "would run 2 of 5",
    ]
    assert not out.exists()


def test_commands_that_are_refused(tmp_path: Path) -> None:
    path = sweep_file(tmp_path, FIVE)
    assert "say where to run" in refused("sweep", path)
    assert "'some' is none of missing, failed, all" in refused(
        *("sweep", path, "--local", "--only", "some")
    )
    bad = sweep_file(tmp_path, "grid: {optimizer.lrr: [1]}\n")
    assert f"{bad}:4:8: optimizer: unknown key 'lrr'" in refused("sweep", bad, "--dry-run")
