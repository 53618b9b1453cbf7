"""How a run stands: by its directory first, then by what a batch system's queue says; no guess is a failure."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from psopt.record.directory import NotARun, RunDirectory
from psopt.record.files import read_object, to_json, write_atomic
from psopt.record.hold import is_held

_STOPPED = "stopped"


class State(StrEnum):
    """What is known of a run."""

    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    RUNNING = "running"
    QUEUED = "queued"
    MISSING = "missing"
    UNKNOWN = "unknown"


class Phase(StrEnum):
    """Where a job is, to a batch system."""

    WAITING = "waiting"
    STUCK = "stuck"
    RUNNING = "running"
    ENDED = "ended"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a batch system says of a job.

    Attributes:
        job: its number.
        phase: where it is; STUCK waits for what will not come by itself.
        reason: in a few words, those of the batch system among them.
    """

    job: str
    phase: Phase
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """What a launcher saw of the end of a run that it had started.

    Attributes:
        status: exit status, or 128 plus the number of the signal.
        reason: the last that the run said, where it did not end with 0.
        stopped: whether the launcher ended it, because it was ended itself.
        time: when.
    """

    status: int
    reason: str = ""
    stopped: bool = False
    time: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a run and why.

    Attributes:
        state: of the run.
        reason: in a few words; of a run that is done, what ended it, as in its summary.
        summary: its outcome, empty where there is none.
    """

    state: State
    reason: str
    summary: dict[str, Any]


def standing_of(path: Path) -> Standing:
    """How the run in a directory stands; one that is not there has not started.

    A run with neither an outcome nor a process that holds its directory has failed if that can be
    told from this host, and is unknown otherwise.
    """
    run = RunDirectory(path)
    if not path.is_dir():
        return Standing(State.MISSING, "not started", {})
    held, ended = is_held(path), read_ended(path)
    if held:
        return Standing(State.RUNNING, "its directory is held", {})
    try:
        summary = run.read_summary()
    except NotARun as error:
        return Standing(State.UNKNOWN, str(error), {})
    if summary is not None:
        return _with_summary(run, summary, ended)
    if ended is not None and ended.stopped:
        return Standing(State.MISSING, f"{_STOPPED} before its end", {})
    if ended is not None:
        reason = f"exit status {ended.status}" + (f": {ended.reason}" if ended.reason else "")
        return Standing(State.FAILED if ended.status else State.UNKNOWN, reason, {})
    if not run.config_path.exists():
        return Standing(State.MISSING, "not started", {})
    host = _host(run)
    if held is None or host != socket.gethostname():
        reason = f"no outcome: it runs on {host}, or was killed there"
        return Standing(State.UNKNOWN, reason, {})
    return Standing(State.FAILED, "no outcome: it was killed", {})


def with_queue(standing: Standing, seen: Seen) -> Standing:
    """How a run stands that is a batch job, by its directory and by the queue.

    What the run has recorded of its end counts unless the job is to go on, and what the queue says of an
    end only where there is no record.
    """
    if standing.state in (State.DONE, State.RUNNING):
        return standing
    said = f"job {seen.job}: {seen.reason}"
    match seen.phase:
        case Phase.WAITING:
            return Standing(State.QUEUED, said, standing.summary)
        case Phase.STUCK:
            return Standing(State.BLOCKED, said, standing.summary)
        case Phase.RUNNING:
            return Standing(State.RUNNING, said, standing.summary)
    stopped = standing.reason.startswith(_STOPPED)
    if standing.state is State.FAILED or (stopped and seen.phase is Phase.FORGOTTEN):
        return standing
    said += f": {standing.reason}" if stopped else ""
    state = State.FAILED if seen.phase is Phase.ENDED else State.UNKNOWN
    return Standing(state, said, standing.summary)


def write_ended(path: Path, ended: Ended) -> None:
    """Record how a run ended, beside what it recorded itself."""
    stamped = {**asdict(ended), "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    write_atomic(_ended_path(path), to_json(stamped, indent=2) + "\n")


def forget_ended(path: Path) -> None:
    """Before a run is started again."""
    _ended_path(path).unlink(missing_ok=True)


def read_ended(path: Path) -> Ended | None:
    """What its launcher recorded of the last end of a run, if anything that can be read."""
    entry = read_object(_ended_path(path))
    status, reason = entry.get("status"), entry.get("reason", "")
    if not isinstance(status, int) or not isinstance(reason, str):
        return None
    return Ended(status, reason, entry.get("stopped") is True, str(entry.get("time", "")))


def _with_summary(run: RunDirectory, summary: dict[str, Any], ended: Ended | None) -> Standing:
    status, reason = summary.get("status"), summary.get("reason")
    said = (isinstance(reason, str) and reason) or "no reason"
    if status == "completed":
        return Standing(State.DONE, said, summary)
    if ended is not None and ended.stopped and _is_newer(_ended_path(run.path), run.summary_path):
        return Standing(State.MISSING, f"{_STOPPED} before its end", summary)
    if status == "stopped":
        return Standing(State.MISSING, f"{_STOPPED} by {reason}, with a checkpoint", summary)
    if not isinstance(status, str):
        return Standing(State.UNKNOWN, f"{run.summary_path}: it has no status", summary)
    return Standing(State.FAILED, said if status == "failed" else f"{status}: {said}", summary)


def _is_newer(path: Path, other: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns >= other.stat().st_mtime_ns
    return False


def _host(run: RunDirectory) -> str:
    return str(read_object(run.environment_path).get("hostname") or "an unknown host")


def _ended_path(path: Path) -> Path:
    return path / "ended.json"
