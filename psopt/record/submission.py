"""How a run was given to a batch system: `batch.json` of its directory, and what lies beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from psopt.reading import parse_json, read_within
from psopt.record.directory import NotARun
from psopt.record.files import cannot_write, to_json, write_atomic

_MOST = 1 << 20  # bytes of batch.json


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands of a batch system by what they are for; names on PATH, or paths.

    Attributes:
        submit: takes a script, such as sbatch.
        launch: starts ranks within a job, such as srun.
        queue: lists the jobs that wait or run, such as squeue.
        cancel: ends a job, such as scancel.
        account: tells of jobs that have ended, such as sacct.
        control: shows and requeues jobs, such as scontrol.
    """

    submit: str
    launch: str
    queue: str
    cancel: str
    account: str
    control: str


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """The files of a run that is a batch job. They are there before it starts, written by `psopt submit`.

    Attributes:
        run: the run directory.
    """

    PATTERNS: ClassVar[tuple[str, ...]] = ("batch", "batch.json", ".batch.json.*.tmp")
    """Their names in the run directory, which is new all the same."""

    run: Path

    @property
    def directory(self) -> Path:
        """Script, job file and output."""
        return self.run / "batch"

    @property
    def job(self) -> Path:
        """The job as it was when it was submitted."""
        return self.directory / "job.yaml"

    @property
    def script(self) -> Path:
        """What the batch system runs."""
        return self.directory / "job.sh"

    @property
    def submission(self) -> Path:
        """A `Submission`."""
        return self.run / "batch.json"


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that a batch system has taken.

    Attributes:
        job: its number; `ARRAY_TASK` of a task of an array.
        cluster: where it is, when there are several.
        site: name of the profile.
        commands: to ask the batch system with, later too.
        submitted: date and time, ISO 8601 with the zone.
        script: path of its script.
        command: with which it was submitted.
    """

    job: str
    cluster: str | None
    site: str
    commands: Commands
    submitted: str
    script: str
    command: tuple[str, ...]

    def task(self, number: int) -> Submission:
        """Of the same array, that of one task."""
        return replace(self, job=f"{self.job}_{number}")

    def write(self, run: Path) -> None:
        """Keep it in a run directory.

        Raises:
            RecordError: it cannot be written.
        """
        path = BatchFiles(run).submission
        try:
            write_atomic(path, to_json(asdict(self), indent=2) + "\n")
        except OSError as error:
            raise cannot_write(path, error) from error

    @staticmethod
    def forget(run: Path) -> None:
        """Before a run is started otherwise."""
        BatchFiles(run).submission.unlink(missing_ok=True)

    @classmethod
    def read(cls, run: Path) -> Submission | None:
        """The submission of a run, or None of one that was started otherwise.

        Raises:
            NotARun: the file cannot be read, or is none of psopt's.
        """
        path = BatchFiles(run).submission
        try:
            values = parse_json(read_within(path, _MOST, follow=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NotARun(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise NotARun(f"{path}: not valid JSON ({error}); remove the file") from error
        if not _is_submission(values):
            raise NotARun(f"{path}: is no record of a submission; remove the file")
        commands, command = Commands(**values["commands"]), tuple(values["command"])
        return cls(**{**values, "commands": commands, "command": command})


def _is_submission(values: Any) -> bool:
    names = {field.name for field in fields(Submission)}
    if not isinstance(values, dict) or values.keys() != names:
        return False
    commands, command = values["commands"], values["command"]
    if not isinstance(commands, dict) or not isinstance(command, list):
        return False
    texts = [values[name] for name in names - {"commands", "command", "cluster"}]
    texts += [*commands.values(), *command]
    texts += [] if values["cluster"] is None else [values["cluster"]]
    same = commands.keys() == {field.name for field in fields(Commands)}
    return same and all(isinstance(text, str) for text in texts)
