"""Give a job to the batch system: its run directory, its script, and the number that it gets.

The run directory is made, and complete, before the batch system hears of the job; a job that it does not
take leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from psopt.config import JobConfig, dump_job
from psopt.config.batch_text import SCRIPTS_OPTIONS, option_name
from psopt.launch.flavour import MpirunError, detect_flavour, find_mpirun
from psopt.launch.script import Start, script
from psopt.launch.site import Site
from psopt.record import BatchFiles, RunDirectory, RunExists, Submission, write_atomic

_PARSABLE = re.compile(r"(\d+)(?:;(\S+))?")
_SENTENCE = re.compile(r"Submitted batch job (\d+)(?: on cluster (\S+))?")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_DEBUG_FLAGS")
_MODE = 0o755


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


@dataclass(frozen=True, slots=True)
class Order:
    """A job for the batch system.

    Attributes:
        config: the job, checked by `check_batch`.
        site: the cluster, with the job's own commands.
        python: the interpreter of the ranks, an absolute path.
        folder: the directory in which they start.
        mpi: for `srun --mpi`.
        flags: options for the submission, as they are.
    """

    config: JobConfig[Any]
    site: Site
    python: Path
    folder: Path
    mpi: str
    flags: tuple[str, ...] = ()

    def script(self, run: Path) -> str:
        """The script of the run in this directory, an absolute path.

        Raises:
            ScriptError: a path holds what no script can.
        """
        return script(self.config, self.site, Start(self.python, self.folder, run, self.mpi))

    def command(self, *words: str) -> list[str]:
        """The command that submits, with these words last."""
        commands = self.site.commands
        return [commands.submit, *self.site.submit_options, *self.flags, *words]


def mpi_of(config: JobConfig[Any], site: Site) -> str:
    """What `srun --mpi` is set to: the job's, else the site's for the MPI that is found here."""
    if config.batch.mpi is not None:
        return config.batch.mpi
    try:
        return site.mpi.of(detect_flavour(find_mpirun()))
    except MpirunError:
        return site.mpi.other


def check_flags(flags: Sequence[str]) -> None:
    """See that options given to the batch system as they are stay options.

    Raises:
        SubmitError: one would be taken for the script, or is psopt's to set.
    """
    takes_value = False
    for flag in flags:
        is_option = flag.startswith("-") and flag.strip("-") != ""
        if not is_option and not takes_value:
            raise SubmitError(
                f"{flag!r} is no option of the batch system: after -- write --name=value, or -x value"
            )
        if is_option and (why := SCRIPTS_OPTIONS.get(option_name(flag))):
            raise SubmitError(f"{flag!r} cannot be set: {why}")
        takes_value = is_option and "=" not in flag


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
    command: Sequence[str], text: str | None = None, *, failed: str = "the job was not taken"
) -> Answer:
    """Run a command of the batch system.

    Args:
        command: its words.
        text: its standard input.
        failed: what it means when it says no.

    Raises:
        SubmitError: it cannot be executed.
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
            check=False,
        )
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


def submit(order: Order, out: Path | None) -> tuple[Submission, Path, Answer]:
    """Make the run directory and submit the job.

    Args:
        order: the job.
        out: the run directory, new or empty; None: one of the job's name and the time.

    Returns:
        What is recorded, the run directory, and all that the batch system said.

    Raises:
        RunExists: the directory is another run's, or is not empty.
        ScriptError: a path holds what no script can.
        SubmitError: the job was not taken, and the directory is gone again; or `NoNumber`.
        OSError: the directory cannot be written.
    """
    existed = out is not None and out.exists()
    run = RunDirectory.create(out, order.config.name).path.absolute()
    try:
        words = order.command(str(_prepare(order, run)))
        answer = ask(words)
    except (OSError, ValueError, SubmitError) as error:
        if not isinstance(error, RunExists):
            _clear(run, existed=existed)
        raise
    given = number_in(
        answer,
        words[0],
        f"look for {order.config.name} in {order.site.commands.queue}; its run directory is {run}",
    )
    submission = Submission(
        job=given.job,
        cluster=given.cluster,
        site=order.site.name,
        commands=order.site.commands,
        submitted=datetime.now(UTC).isoformat(timespec="seconds"),
        script=str(BatchFiles(run).script),
        command=tuple(words),
    )
    submission.write(run)
    return submission, run, answer


def _prepare(order: Order, run: Path) -> Path:
    """Write what the job starts from; the script."""
    files, text = BatchFiles(run), order.script(run)
    try:
        files.directory.mkdir()
    except FileExistsError:
        raise RunExists(f"{run}: another job is being submitted there; name a directory") from None
    write_atomic(files.job, dump_job(order.config))
    write_atomic(files.script, text)
    files.script.chmod(_MODE)
    return files.script


def _clear(run: Path, *, existed: bool) -> None:
    shutil.rmtree(BatchFiles(run).directory, ignore_errors=True)
    if not existed:
        with contextlib.suppress(OSError):
            run.rmdir()
