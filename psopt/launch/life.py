"""What becomes of a run after its start: is its job in the queue, on with it, and away with it."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from psopt.launch.asking import Answer, SubmitError, ask, number_in
from psopt.launch.queue import going
from psopt.record import (
    BatchFiles,
    NotARun,
    Phase,
    RunDirectory,
    Seen,
    State,
    Submission,
    SweepDirectory,
    holder,
    is_held,
    read_object,
    standing_of,
)

_AT_ONCE = 500  # jobs that one command names


class NotAgain(SubmitError):  # noqa: N818 - reads as what is the case
    """A run is not submitted anew; the text says why and the remedy."""


class NotHere(SubmitError):  # noqa: N818 - reads as what is the case
    """Nothing can be stopped from here; the text says why."""

    status = 1


def resubmit(run: Path, submission: Submission) -> tuple[Submission, Answer]:
    """Submit a run's own script again, which goes on where the run stands.

    Returns:
        What is recorded now, and all that the batch system said.

    Raises:
        NotAgain: the run is complete, or goes on, or its script is not its own.
        NotARun, RunExists: its outcome cannot be read; a process runs in its directory.
        SubmitError: the job was not taken, or `NoNumber`.
        OSError: the submission cannot be recorded.
    """
    directory = RunDirectory(run)
    if (directory.read_summary() or {}).get("status") == "completed":
        raise NotAgain(f"{run}: the run is complete")
    _check_script(run, submission)
    hold = directory.hold()
    try:
        (seen,) = going([submission])
        if seen.phase is not Phase.FORGOTTEN:
            raise NotAgain(
                f"{run}: its job {seen.job} is still in the queue: {seen.reason}; wait for its end, or "
                "`psopt cancel` it"
            )
        answer = ask(submission.command)
        remedy = f"look for it in {submission.commands.queue}; its run directory is {run}"
        given = number_in(answer, submission.command[0], remedy)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        again = dataclasses.replace(submission, job=given.job, cluster=given.cluster, submitted=now)
        again.write(run)
    finally:
        hold.release()
    return again, answer


def cancel_run(run: Path) -> str:
    """Have a run end: its job, or else its coordinator on this host, which saves a checkpoint first.

    Returns:
        What was cancelled.

    Raises:
        NotHere: nothing of it runs, or not here.
        NotARun: the record of its submission cannot be read.
        SubmitError: the batch system says no.
    """
    submission, why = Submission.read(run), ""
    if submission is not None:
        (seen,) = going([submission])
        if seen.phase is not Phase.FORGOTTEN:
            _cancel([submission])
            return f"job {seen.job} ({seen.reason})"
        why = f"; job {seen.job}: {seen.reason}"
    if is_held(run) is False:
        raise NotHere(f"{run}: nothing runs there{why}")
    if (pid := holder(run)) is None:
        host = read_object(RunDirectory(run).environment_path).get("hostname") or "another host"
        who = "somebody else's process" if host == socket.gethostname() else f"one on {host}"
        raise NotHere(f"{run}: no process here holds it; {who} may, so cancel it there{why}")
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError as error:
        raise NotHere(f"{run}: process {pid} cannot be told: {error.strerror}") from error
    return f"process {pid}, which saves a checkpoint first"


def cancel_sweep(sweep: SweepDirectory, warn: Callable[[str], None]) -> list[tuple[Path, Seen]]:
    """Cancel the jobs of those of a sweep's runs that are not done.

    Args:
        sweep: its directory.
        warn: hears of submissions that cannot be read.

    Returns:
        Of each job: the run's directory, and what the queue said of it.

    Raises:
        NotHere: none of them waits or runs.
        NotASweep: the plan cannot be read.
        SubmitError: the batch system says no.
    """
    runs: list[tuple[Path, Submission]] = []
    for path in (sweep.run_path(entry.id) for entry in sweep.read().runs):
        try:
            submission = Submission.read(path)
        except NotARun as error:
            warn(str(error))
        else:
            if submission is not None and standing_of(path).state is not State.DONE:
                runs.append((path, submission))
    told = zip(runs, going([submission for _, submission in runs]), strict=True)
    found = [(*run, seen) for run, seen in told if seen.phase is not Phase.FORGOTTEN]
    if not found:
        raise NotHere(f"{sweep.path}: none of its runs has a job in the queue")
    _cancel([submission for _, submission, _ in found])
    return [(path, seen) for path, _, seen in found]


def _cancel(submissions: Sequence[Submission]) -> None:
    groups: dict[tuple[str, str | None], list[str]] = {}
    for each in submissions:
        groups.setdefault((each.commands.cancel, each.cluster), []).append(each.job)
    for (command, cluster), jobs in groups.items():
        options = [] if cluster is None else [f"--clusters={cluster}"]
        for first in range(0, len(jobs), _AT_ONCE):
            words = [command, *options, *jobs[first : first + _AT_ONCE]]
            ask(words, failed="nothing was cancelled")


def _check_script(run: Path, submission: Submission) -> None:
    """A script names the directory that it was written for."""
    own = BatchFiles(run).script
    if submission.job.count("_"):
        raise NotAgain(
            f"{run}: its job {submission.job} is one of an array; `psopt sweep` runs what is missing, or go on "
            "here with `psopt run --resume`"
        )
    if (
        not own.is_file()
        or not Path(submission.script).exists()
        or not own.samefile(submission.script)
    ):
        raise NotAgain(
            f"{run}: its script is not {submission.script}, with which it was submitted; move the directory back, "
            "or go on with `psopt run --resume`"
        )
