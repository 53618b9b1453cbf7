"""What becomes of a run after its start: is its job in the queue, on with it, and away with it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from psopt.launch.submit import Answer, SubmitError, ask, number_in
from psopt.record import (
    BatchFiles,
    NotARun,
    RunDirectory,
    State,
    Submission,
    SweepDirectory,
    holder,
    is_held,
    read_object,
    standing_of,
)

_AT_ONCE = 500  # jobs that one command names
_LINE = re.compile(r"^ *(\d+(?:_\d+)?)(?:\+\d+)? +([A-Z_]+) *$")  # a component of a job has +N


class NotAgain(SubmitError):  # noqa: N818 - reads as what is the case
    """A run is not submitted anew; the text says why and the remedy."""


class NotHere(SubmitError):  # noqa: N818 - reads as what is the case
    """Nothing can be stopped from here; the text says why."""

    status = 1


def in_queue(submissions: Sequence[Submission]) -> dict[Submission, str]:
    """The states of those jobs that wait or run, such as PENDING.

    Raises:
        SubmitError: the queue cannot be asked; or it says no, as Slurm does where the only job is unknown.
    """
    found: dict[Submission, str] = {}
    for command, options, some in _calls(submissions, "queue"):
        jobs = ",".join(each.job for each in some)
        words = [command, "--noheader", "--array", *options, "--jobs", jobs, "--format=%i %T"]
        answer = ask(words, failed="the queue cannot be asked")
        lines = map(_LINE.search, answer.out.splitlines())
        states = {match[1]: match[2] for match in lines if match}
        found |= {each: states[each.job] for each in some if each.job in states}
    return found


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
    hold, states = directory.hold(), dict[Submission, str]()
    try:
        with contextlib.suppress(SubmitError):
            states = in_queue([submission])
        if states:
            raise NotAgain(
                f"{run}: its job {submission.job} is still in the queue, {states[submission]}; wait for its "
                "end, or `psopt cancel` it"
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
        why = f"; job {submission.job} is not in the queue"
        try:
            states = in_queue([submission])
        except SubmitError as error:
            states, why = {}, f"; job {submission.job}: {error}"
        if states:
            _cancel([submission])
            return f"job {submission.job}, which was {states[submission]}"
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


def cancel_sweep(
    sweep: SweepDirectory, warn: Callable[[str], None]
) -> list[tuple[Path, Submission, str]]:
    """Cancel the jobs of those of a sweep's runs that are not done.

    Args:
        sweep: its directory.
        warn: hears of submissions that cannot be read.

    Returns:
        Of each job: the run's directory, its submission and the state that it had.

    Raises:
        NotHere: none of them waits or runs.
        NotASweep: the plan cannot be read.
        SubmitError: the batch system says no.
    """
    runs: dict[Submission, Path] = {}
    for path in (sweep.run_path(entry.id) for entry in sweep.read().runs):
        try:
            if (submission := Submission.read(path)) is not None:
                runs[submission] = path
        except NotARun as error:
            warn(str(error))
    why = ""
    try:
        states = in_queue([*runs])
    except SubmitError as error:
        states, why = {}, f"; {error}"
    going = [each for each in states if standing_of(runs[each]).state is not State.DONE]
    if not going:
        raise NotHere(f"{sweep.path}: none of its runs has a job in the queue{why}")
    _cancel(going)
    return [(runs[each], each, states[each]) for each in going]


def _cancel(submissions: Sequence[Submission]) -> None:
    for command, options, some in _calls(submissions, "cancel"):
        jobs = [each.job for each in some]
        ask([command, *options, *jobs], failed="nothing was cancelled")


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


def _calls(
    submissions: Sequence[Submission], purpose: str
) -> Iterator[tuple[str, list[str], Sequence[Submission]]]:
    """Command, options and jobs of each call that it takes."""
    groups: dict[tuple[str, str | None], list[Submission]] = {}
    for each in submissions:
        key = getattr(each.commands, purpose), each.cluster
        groups.setdefault(key, []).append(each)
    for (command, cluster), group in groups.items():
        options = [] if cluster is None else [f"--clusters={cluster}"]
        for first in range(0, len(group), _AT_ONCE):
            yield command, options, group[first : first + _AT_ONCE]
