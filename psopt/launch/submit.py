"""Give a job to the batch system: its run directory, its script, and the number that it gets.

The run directory is made, and complete, before the batch system hears of the job; a job that it does not
take leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from psopt.config import JobConfig, dump_job
from psopt.config.batch_text import SCRIPTS_OPTIONS, option_name
from psopt.launch.asking import Answer, NoNumber, SubmitError, ask, number_in
from psopt.launch.flavour import MpirunError, detect_flavour, find_mpirun
from psopt.launch.script import Start, script
from psopt.launch.site import Site, find_site, sites
from psopt.record import BatchFiles, RunDirectory, RunExists, Submission, write_atomic

_MODE = 0o755


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

    @classmethod
    def of(cls, config: JobConfig[Any], flags: Sequence[str] = ()) -> Order:
        """The order of a job from here: this interpreter, this directory, and the job's site or the one found.

        Raises:
            SubmitError: there is no batch system.
        """
        site = site_of(config)
        batch = config.batch.model_copy(update={"site": site.name})
        named, python = config.model_copy(update={"batch": batch}), Path(sys.executable).absolute()
        return cls(named, site, python, Path.cwd(), mpi_of(config, site), tuple(flags))

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


def site_of(config: JobConfig[Any]) -> Site:
    """The cluster that a job names, else the one whose commands are here; with the job's own commands.

    Raises:
        SubmitError: there is none.
    """
    site = sites().get(config.batch.site) if config.batch.site else find_site()
    if site is None:
        known = ", ".join(sites())
        raise SubmitError(
            f"there is no site {config.batch.site!r}: use one of {known}"
            if config.batch.site
            else "no batch system is on PATH: go to a login node or load the cluster's Slurm module; "
            f"batch.site says which it is: {known}"
        )
    return site.with_commands(config.batch.commands)


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
        submission, answer = give(order, _prepare(order, run))
    except (OSError, ValueError, SubmitError) as error:
        if not isinstance(error, RunExists | NoNumber):
            _clear(run, existed=existed)
        raise
    submission.write(run)
    return submission, run, answer


def give(order: Order, script: Path, *options: str) -> tuple[Submission, Answer]:
    """Give a script to the batch system.

    Args:
        order: the job.
        script: that is there.
        options: of this submission, beside those of the order.

    Returns:
        What is to be recorded, and all that the batch system said.

    Raises:
        SubmitError: the job was not taken; or `NoNumber`.
    """
    words = order.command(*options, str(script))
    answer = ask(words)
    remedy = f"look for {order.config.name} in {order.site.commands.queue}; its script is {script}"
    given = number_in(answer, words[0], remedy)
    submission = Submission(
        job=given.job,
        cluster=given.cluster,
        site=order.site.name,
        commands=order.site.commands,
        submitted=datetime.now(UTC).isoformat(timespec="seconds"),
        script=str(script),
        command=tuple(words),
    )
    return submission, answer


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
