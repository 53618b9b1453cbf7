"""What the batch system knows of jobs that were submitted, and how their runs stand by that.

The queue is asked once for all of a user's jobs. Of those that are not in it the accounting is asked, and
where there is none the controller, which remembers jobs for some minutes after their end.

A run's `batch.json`, which may be somebody else's, says what to ask. It cannot name any program: a command is
one of a site that psopt knows, found on PATH, or one of the system that has such a name.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

from psopt.launch.asking import SubmitError, ask
from psopt.launch.site import sites
from psopt.record import (
    Commands,
    NotARun,
    Phase,
    Seen,
    Standing,
    State,
    Submission,
    last_words,
    standing_of,
    with_queue,
)

_PATIENCE = 60.0  # seconds for an answer
_MOST_JOBS = 200  # in one question to the accounting
_FIELD = re.compile(r"(\w+)=(\S*)")
_COMPONENT = re.compile(r"\+0$")  # the first part of a heterogeneous job
_WAIT = ("PENDING", "REQUEUED", "SPECIAL_EXIT", "REQUEUE_HOLD", "REQUEUE_FED")
_RUN = (
    "RUNNING",
    "CONFIGURING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
)
_ENDS = {
    "TIMEOUT": "its time limit came (batch.time)",
    "OUT_OF_MEMORY": "it wanted more memory than it had (batch.memory)",
    "NODE_FAIL": "a node failed",
    "BOOT_FAIL": "a node did not boot",
    "CANCELLED": "it was cancelled",
    "PREEMPTED": "another job took its nodes",
    "DEADLINE": "it could not end in time (--deadline)",
}
_STATUSES = {
    "126": "a command of its script cannot be executed (status 126)",
    "127": "a command of its script was not found (status 127)",
}
_STUCK = {
    "DependencyNeverSatisfied": "the job that it depends on has failed; cancel it",
    "JobHeldUser": "it is held; release it",
    "JobHeldAdmin": "an administrator holds it",
    "JobHoldMaxRequeue": "it was requeued too often; release it, or cancel it",
    "launch failed requeued held": "its nodes could not start it; see the batch system's log, and release it",
    "BadConstraints": "no node is as it asks for",
    "PartitionNodeLimit": "its partition allows fewer nodes",
    "PartitionTimeLimit": "its partition allows less time",
    "PartitionConfig": "its partition has no such nodes",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its quality of service is not valid",
}


def standings(paths: Sequence[Path]) -> list[Standing]:
    """How the runs in these directories stand, in order; the queue is asked where it can know more."""
    found = [standing_of(path) for path in paths]
    asked: dict[int, Submission] = {}
    for place, (path, standing) in enumerate(zip(paths, found, strict=True)):
        if standing.state in (State.DONE, State.RUNNING):
            continue
        try:
            submission = Submission.read(path)
        except NotARun:
            continue
        if submission is not None:
            asked[place] = submission
    for place, seen in zip(asked, look([*asked.values()]), strict=True):
        found[place] = with_queue(found[place], _explained(seen, found[place], paths[place]))
    return found


def look(submissions: Sequence[Submission]) -> list[Seen]:
    """What batch systems say of these jobs, in order; those that nobody knows are FORGOTTEN."""
    return _told(submissions, (_in_queue, _in_accounts, _in_memory))


def going(submissions: Sequence[Submission]) -> list[Seen]:
    """What queues say of these jobs, in order: those that neither wait nor run are FORGOTTEN."""
    return _told(submissions, (_in_queue,))


_Knows = Callable[[Commands, list[str], list[str]], Iterator[Seen]]
"""Tells of jobs, given the commands, options that name a cluster, and their numbers; of others, too."""


def _told(submissions: Sequence[Submission], those: Sequence[_Knows]) -> list[Seen]:
    known: dict[tuple[Commands, str | None], dict[str, Seen]] = {}
    for submission in submissions:
        unknown = Seen(submission.job, Phase.FORGOTTEN, "the batch system does not know it")
        known.setdefault((submission.commands, submission.cluster), {})[submission.job] = unknown
    for (commands, cluster), jobs in known.items():
        if strange := _strange(commands):
            why = f"{strange!r} in its batch.json is no command of a batch system, and is not run"
            jobs.update({job: Seen(job, Phase.FORGOTTEN, why) for job in jobs})
            continue
        options = [f"--clusters={cluster}"] if cluster else []
        for knows in those:
            rest = [job for job, seen in jobs.items() if seen.phase is Phase.FORGOTTEN]
            if rest:
                told = knows(commands, options, rest)
                jobs.update({seen.job: seen for seen in told if seen.job in jobs})
    return [known[each.commands, each.cluster][each.job] for each in submissions]


def most_tasks(commands: Commands) -> int:
    """How many tasks an array of jobs may have, by the controller; Slurm's default where it is silent."""
    shown = _answer([commands.control, "show", "config"]) or ""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", shown, re.MULTILINE)
    return max(1, int(found[1])) if found else 1001


def _strange(commands: Commands) -> str:
    """A command that is not to be run on the word of a file: neither a site's, nor the system's of that name."""
    known = {name for site in sites().values() for name in astuple(site.commands)}
    for command in (commands.queue, commands.account, commands.control):
        path = Path(command)
        if path.name not in known or (path.name != command and not _is_of_the_system(path)):
            return command
    return ""


def _is_of_the_system(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return True  # there is nothing to be run
    return path.is_absolute() and found.st_uid == 0 and not found.st_mode & 0o022


def _in_queue(commands: Commands, options: list[str], jobs: list[str]) -> Iterator[Seen]:
    """The user's jobs that wait or run; arrays task by task."""
    words = ["--noheader", "--array", f"--user={os.getuid()}", "--format=%i|%T|%r"]
    said = _answer([commands.queue, *options, *words])
    if said is None:
        for job in jobs:
            yield Seen(job, Phase.FORGOTTEN, f"{commands.queue} gives no answer")
    for line in (said or "").splitlines():
        job, _, rest = line.strip().partition("|")
        state, _, reason = rest.partition("|")
        if state:
            yield _seen(job, state, reason, "")


def _in_accounts(commands: Commands, options: list[str], jobs: list[str]) -> Iterator[Seen]:
    """Jobs that have ended, as long as the site keeps them."""
    words = ["--noheader", "--parsable2", "--allocations", "--format=JobID,State,ExitCode"]
    for start in range(0, len(jobs), _MOST_JOBS):
        asked = f"--jobs={','.join(jobs[start : start + _MOST_JOBS])}"
        said = _answer([commands.account, *options, *words, asked])
        for line in (said or "").splitlines():
            fields = line.strip().split("|")
            if len(fields) == 3:
                yield _seen(fields[0], fields[1], "", fields[2])


def _in_memory(commands: Commands, options: list[str], jobs: list[str]) -> Iterator[Seen]:
    """Jobs that have ended a while ago; an array's tasks together."""
    for job in dict.fromkeys(job.partition("_")[0] for job in jobs):
        said = _answer([commands.control, *options, "show", "job", "--oneliner", job])
        for line in (said or "").splitlines():
            shown = dict(_FIELD.findall(line))
            number = shown.get("JobId", "")
            if "ArrayTaskId" in shown:
                number = f"{shown.get('ArrayJobId')}_{shown['ArrayTaskId']}"
            yield _seen(
                number,
                shown.get("JobState", ""),
                shown.get("Reason", ""),
                shown.get("ExitCode", ""),
            )


def _seen(job: str, state: str, reason: str, code: str) -> Seen:
    """A job as it is told of.

    Args:
        job: its number.
        state: in the batch system's word, and maybe by whom.
        reason: why it waits.
        code: of its end, `status:signal`.
    """
    job, state = _COMPONENT.sub("", job), (state.split() or [""])[0]
    if state in _RUN:
        return Seen(job, Phase.RUNNING, state.lower())
    if state in _WAIT:
        if why := _STUCK.get(reason.replace("_", " ")) or _STUCK.get(reason):
            return Seen(job, Phase.STUCK, f"{why} ({reason})")
        return Seen(job, Phase.WAITING, f"waits ({reason})" if reason else "waits")
    if state in _ENDS:
        return Seen(job, Phase.ENDED, f"{_ENDS[state]} ({state})")
    if state == "COMPLETED":
        return Seen(job, Phase.ENDED, "it ended with status 0, but its run did not")
    if state == "FAILED":
        status = code.partition(":")[0]
        said = _STATUSES.get(status, f"its script ended with status {status}")
        return Seen(job, Phase.ENDED, f"{said} ({state})")
    return Seen(job, Phase.FORGOTTEN, f"it is in a state unknown to psopt ({state})")


def _explained(seen: Seen, standing: Standing, path: Path) -> Seen:
    """With the last that the job has said, where that is all that is known of its end."""
    if seen.phase is not Phase.ENDED or standing.summary:
        return seen
    words = last_words(path)
    return Seen(seen.job, seen.phase, f"{seen.reason}: {words}") if words else seen


def _answer(command: Sequence[str]) -> str | None:
    """What a command prints; None of one that is not there, or fails."""
    with contextlib.suppress(SubmitError):
        return ask(command, patience=_PATIENCE).out
    return None
