"""Commands of a batch system: to run them, and to read what they say of a submission."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_PARSABLE = re.compile(r"(\d+)(?:;(\S+))?")
_SENTENCE = re.compile(r"Submitted batch job (\d+)(?: on cluster (\S+))?")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_DEBUG_FLAGS")


class SubmitError(RuntimeError):
    """A job cannot be submitted; the text says what and the remedy.

    Attributes:
        status: exit status of `psopt submit`.
    """

    status = 2


class Rejected(SubmitError):  # noqa: N818 - reads as what happened
    """The batch system did not take a job; the text is what it said."""

    status = 1


class NoNumber(SubmitError):  # noqa: N818 - reads as what happened
    """The batch system has taken a job, and nobody knows under which number."""

    status = 1


@dataclass(frozen=True, slots=True)
class JobId:
    """A job's number, and the cluster that it is on when there are several."""

    job: str
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the batch system said to a submission.

    Attributes:
        out: its standard output.
        err: its standard error: warnings.
    """

    out: str
    err: str


def job_id(answer: str) -> JobId | None:
    """The number in what a batch system prints: `123`, `123;cluster`, or a sentence; None without one."""
    for line in reversed(answer.splitlines()):
        match = _PARSABLE.fullmatch(line.strip()) or _SENTENCE.search(line)
        if match:
            return JobId(match[1], match[2])
    return None


def number_in(answer: Answer, command: str, remedy: str) -> JobId:
    """The number in the answer to a submission.

    Raises:
        NoNumber: there is none.
    """
    given = job_id(answer.out) or job_id(answer.err)
    if given is None:
        said = (answer.out + answer.err).strip()
        raise NoNumber(
            f"{command} has taken the job, but its answer has no number: {said!r}; {remedy}"
        )
    return given


def ask(
    command: Sequence[str],
    text: str | None = None,
    *,
    failed: str = "the job was not taken",
    patience: float | None = None,
) -> Answer:
    """Run a command of the batch system.

    Args:
        command: its words.
        text: its standard input.
        failed: what it means when it says no.
        patience: seconds for its answer; None: without end.

    Raises:
        SubmitError: it cannot be executed, or gives no answer.
        Rejected: it says no.
    """
    try:
        done = subprocess.run(
            command,
            input=text or "",
            capture_output=True,
            text=True,
            errors="replace",
            env=outside(os.environ),
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SubmitError(f"{command[0]} has given no answer for {error.timeout:g} s") from error
    except OSError as error:
        raise SubmitError(
            f"cannot execute {command[0]}: {error.strerror}; go to a login node, load the cluster's Slurm "
            "module, or name another command in batch.commands"
        ) from error
    if done.returncode != 0:
        words = (done.stderr + done.stdout).strip() or "nothing"
        raise Rejected(
            f"{failed}: {command[0]} ended with status {done.returncode} and said:\n{words}"
        )
    return Answer(done.stdout, done.stderr)


def outside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what Slurm has said of the job that this process may be part of.

    A job that is submitted from within another one would take its numbers for its own.
    """
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("SLURM_") or name in _KEPT
    }
