"""How a run stands is told from its directory alone, and what is not known is not failed."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from psopt.record import (
    Ended,
    RunDirectory,
    RunExists,
    Standing,
    State,
    forget_ended,
    read_ended,
    standing_of,
    write_ended,
)
from psopt.record import standing as module


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", "job")


def started(run: RunDirectory, host: str = socket.gethostname()) -> None:
    run.write_config("name: job\n")
    run.environment_path.write_text(json.dumps({"hostname": host}))


def ended(run: RunDirectory, status: str, reason: str = "why") -> Mapping[str, str]:
    started(run)
    summary = {"status": status, "reason": reason}
    run.write_summary(summary)
    return summary


def state(run: RunDirectory) -> tuple[State, str]:
    standing = standing_of(run.path)
    return standing.state, standing.reason


def test_not_there(tmp_path: Path) -> None:
    assert standing_of(tmp_path / "none") == Standing(State.MISSING, "not started", {})


def test_prepared_only(run: RunDirectory) -> None:
    (run.path / "job.yaml").write_text("name: job\n")
    assert state(run) == (State.MISSING, "not started")


def test_done(run: RunDirectory) -> None:
    summary = ended(run, "completed")
    assert standing_of(run.path) == Standing(State.DONE, "why", dict(summary))


@pytest.mark.parametrize(("status", "reason"), [("failed", "why"), ("diverged", "diverged: why")])
def test_failed(run: RunDirectory, status: str, reason: str) -> None:
    ended(run, status)
    assert state(run) == (State.FAILED, reason)


def test_stopped_with_a_checkpoint_is_to_go_on(run: RunDirectory) -> None:
    ended(run, "stopped")
    assert state(run) == (State.MISSING, "stopped by why, with a checkpoint")


def test_held_is_running_whatever_was_before(run: RunDirectory) -> None:
    ended(run, "failed")
    write_ended(run.path, Ended(1, "before"))
    hold = run.hold()
    assert state(run) == (State.RUNNING, "its directory is held")
    hold.release()
    assert state(run) == (State.FAILED, "why")


def test_looking_keeps_nobody_out(run: RunDirectory) -> None:
    for _ in range(20):
        standing_of(run.path)
        run.hold().release()
    hold = run.hold()
    with pytest.raises(RunExists, match="another process runs in it"):
        run.hold()
    hold.release()


def test_killed_on_this_host(run: RunDirectory) -> None:
    started(run)
    assert state(run) == (State.FAILED, "no outcome: it was killed")


def test_no_outcome_on_another_host_is_unknown(run: RunDirectory) -> None:
    started(run, "elsewhere")
    assert state(run) == (
        State.UNKNOWN,
        "no outcome: it runs on elsewhere, or was killed there",
    )


def test_no_outcome_without_locks_is_unknown(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(run)
    monkeypatch.setattr(module, "is_held", lambda path: None)
    assert state(run)[0] is State.UNKNOWN


def test_a_damaged_summary_is_unknown(run: RunDirectory) -> None:
    started(run)
    run.summary_path.write_text("{")
    found = standing_of(run.path)
    assert found.state is State.UNKNOWN
    assert found.reason.startswith(f"{run.summary_path}: not valid JSON")
    run.summary_path.write_text('{"status": 3}')
    assert state(run) == (State.UNKNOWN, f"{run.summary_path}: it has no status")


def test_ended_before_it_had_begun(run: RunDirectory) -> None:
    write_ended(run.path, Ended(2, "data.h5: no such file"))
    assert state(run) == (State.FAILED, "exit status 2: data.h5: no such file")
    forget_ended(run.path)
    assert state(run) == (State.MISSING, "not started")


def test_stopped_is_missing(run: RunDirectory) -> None:
    started(run)
    write_ended(run.path, Ended(143, "", stopped=True))
    assert state(run) == (State.MISSING, "stopped before its end")


def test_stopped_with_a_summary_of_it(run: RunDirectory) -> None:
    ended(run, "failed", "KeyboardInterrupt: ")
    write_ended(run.path, Ended(130, "", stopped=True))
    assert state(run) == (State.MISSING, "stopped before its end")
    later = run.summary_path.stat().st_mtime + 100
    os.utime(run.summary_path, (later, later))  # it was run again by hand since
    assert state(run)[0] is State.FAILED


def test_ended_is_read_back(run: RunDirectory) -> None:
    assert read_ended(run.path) is None
    write_ended(run.path, Ended(3, "why", stopped=True))
    found = read_ended(run.path)
    assert found is not None
    assert (found.status, found.reason, found.stopped) == (3, "why", True)
    (run.path / "ended.json").write_text('{"status": "x"}')
    assert read_ended(run.path) is None
