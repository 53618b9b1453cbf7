"""One directory a run: where each file is, and how a new directory is claimed."""

from __future__ import annotations

import io
import stat
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TextIO

from psopt.reading import parse_json, read_within
from psopt.record.files import cannot_write, temporary_for, to_json, write_atomic
from psopt.record.hold import Hold, lock
from psopt.record.metrics import read_metrics

BEFOREHAND = ("job.yaml", "assignment.json", "output.log", "ended.json")
"""Files that a sweep puts into a run directory before the run is there."""

EXITS = {"completed": 0, "failed": 1, "diverged": 3, "stopped": 75}
"""Exit status by a run's status, as its summary has it."""

_NEEDED = 1 << 14  # bytes that a run cannot do without
_MOST_SUMMARY = 1 << 26  # bytes of a summary, which has a line a worker


class RunExists(FileExistsError):  # noqa: N818 - reads as what happened
    """The directory asked for already holds a run, or something else."""


class NotARun(FileNotFoundError):  # noqa: N818 - reads as what happened
    """The path is not a run directory, or a file of it cannot be read."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of one run. Rank 0 is their only writer.

    Attributes:
        path: the directory.
    """

    path: Path

    @classmethod
    def create(cls, path: Path | None, name: str, *, allowed: Collection[str] = ()) -> RunDirectory:
        """Make a new run directory.

        Args:
            path: the directory, or None for `runs/<name>-<date>-<time>`, with `-2`, `-3`, ... added
                when others of that name were made in the same second. Its parents are made too.
            name: the job's name.
            allowed: name patterns of files that a launcher may have put into `path` beforehand.

        Raises:
            RunExists: `path` holds a run already, or files that are none of `allowed`.
        """
        if path is None:
            return cls(_claim(cls.fresh(name)))
        run = cls(Path(path))
        try:
            run.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise RunExists(
                f"{path}: it, or a part of it, is a file; name a directory for the run"
            ) from error
        run.check_new()
        for entry in sorted(run.path.iterdir()):
            if not any(fnmatchcase(entry.name, pattern) for pattern in allowed):
                raise RunExists(
                    f"{path}: is not empty (it holds {entry.name!r}) and is not a run directory; "
                    "name a new or an empty directory"
                )
        return run

    @staticmethod
    def fresh(name: str) -> Path:
        """The directory that `create` makes now for a job of that name, if nobody else does."""
        return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """The run directory at `path`, which may be a link itself.

        Raises:
            NotARun: there is no `config.yaml` at `path`, or a file there is a link, a pipe or a
                device: what belongs to a run lies in its directory.
        """
        run = cls(Path(path))
        if not run.path.exists():
            raise NotARun(f"{path}: no such directory; name the directory of a run")
        if not run.config_path.is_file():
            raise NotARun(
                f"{path}: not a run directory, config.yaml is missing; name the directory of a run"
            )
        for entry in (run.checkpoints, *run._replaced, *run._appended):
            _require_own(entry)
        return run

    def check_new(self) -> None:
        """See that the directory holds no run.

        Raises:
            RunExists: it does.
        """
        if self.config_path.exists():
            raise RunExists(
                f"{self.path}: holds a run already; continue it with --resume, or name another directory"
            )

    def check_writable(self) -> None:
        """See that a run can be recorded here; what is there stays as it is.

        Raises:
            RecordError: the directory or a file of it cannot be written.
        """
        probe = temporary_for(self.path / "probe")
        for path in (*self._replaced, *self._appended, probe):
            try:
                if path == probe:
                    probe.unlink(missing_ok=True)
                    with probe.open("xb") as handle:
                        handle.write(bytes(_NEEDED))
                elif path.is_dir() or (path in self._appended and path.exists()):
                    path.open("ab").close()
            except OSError as error:
                raise cannot_write(self.path if path == probe else path, error) from error
            finally:
                probe.unlink(missing_ok=True)

    def open_log(self) -> TextIO:
        """log.txt, to append to. Nothing waits in memory, to fail again when the file is closed."""
        raw: Any = self.log_path.open("ab", buffering=0)
        return io.TextIOWrapper(raw, encoding="utf-8", write_through=True)

    def hold(self) -> Hold:
        """Keep other processes from running in this directory until the hold is released.

        Raises:
            RunExists: another process runs in it.
        """
        held = lock(self.path)
        if held is None:
            raise RunExists(
                f"{self.path}: another process runs in it; wait for its end, or name another directory"
            )
        return held

    @property
    def _replaced(self) -> tuple[Path, ...]:
        return self.config_path, self.environment_path, self.ranks_path, self.summary_path

    @property
    def _appended(self) -> tuple[Path, ...]:
        return self.attempts_path, self.log_path, self.metrics_path, self.timeline_path

    @property
    def config_path(self) -> Path:
        """The resolved job."""
        return self.path / "config.yaml"

    @property
    def environment_path(self) -> Path:
        """Versions, hosts and variables that the run met."""
        return self.path / "environment.json"

    @property
    def metrics_path(self) -> Path:
        """One JSON line a step and an evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def summary_path(self) -> Path:
        """The outcome; it appears when the run ends."""
        return self.path / "summary.json"

    @property
    def timeline_path(self) -> Path:
        """What each rank did when, as a Chrome trace."""
        return self.path / "timeline.json"

    @property
    def checkpoints(self) -> Path:
        """The directory of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def ranks_path(self) -> Path:
        """Host, process and device of each rank."""
        return self.path / "ranks.json"

    @property
    def log_path(self) -> Path:
        """The text log."""
        return self.path / "log.txt"

    @property
    def attempts_path(self) -> Path:
        """One JSON line a start of the run."""
        return self.path / "attempts.jsonl"

    def identity(self) -> str:
        """What the first start of the run has called it, as its attempts say; empty before it.

        It is in the directory and not its name, so that it survives a move; copies share it.
        """
        if not self.attempts_path.exists():
            return ""
        return next(
            (str(row["run"]) for row in read_metrics(self.attempts_path) if "run" in row), ""
        )

    def write_config(self, text: str) -> None:
        """Write the resolved job; from then on the directory counts as a run."""
        write_atomic(self.config_path, text)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the outcome of the run.

        Raises:
            RecordError: it cannot be written.
        """
        try:
            write_atomic(self.summary_path, to_json(summary, indent=2) + "\n")
        except OSError as error:
            raise cannot_write(self.summary_path, error) from error

    def read_summary(self) -> dict[str, Any] | None:
        """The outcome of the run, or None when it has not ended.

        Raises:
            NotARun: the file is not a JSON object.
        """
        try:
            summary = parse_json(read_within(self.summary_path, _MOST_SUMMARY, follow=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NotARun(f"{self.summary_path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise NotARun(
                f"{self.summary_path}: not valid JSON ({error}); remove the file"
            ) from error
        if not isinstance(summary, dict):
            raise NotARun(f"{self.summary_path}: not a JSON object; remove the file")
        return summary


def _require_own(path: Path) -> None:
    """A link would lead readers and writers out of the directory; a pipe would never end.

    Raises:
        NotARun: `path` is such a thing.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise NotARun(
            f"{path}: is a symbolic link, which may lead anywhere; put there what it leads to, or "
            "make the whole run directory a link"
        )
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise NotARun(f"{path}: is a pipe, a socket or a device; remove it")


def _claim(wanted: Path) -> Path:
    """Make a directory that no other process has; `mkdir` decides who gets a name."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    path, number = wanted, 1
    while True:
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1
            path = wanted.with_name(f"{wanted.name}-{number}")
