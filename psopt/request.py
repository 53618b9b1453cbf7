"""What the user asked to run, checked: everything that can be found wrong is found before training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt import job, precheck
from psopt.config import TRIED, ConfigError, JobConfig, canonical_json, value_json
from psopt.record import (
    BEFOREHAND,
    BatchFiles,
    CheckpointError,
    CheckpointStore,
    Hold,
    NotARun,
    RunDirectory,
    RunExists,
    Tree,
    hold_again,
    read_metrics,
)
from psopt.schemes.base import Scheme

_PROBLEM = ("model", "data", "loss", "scheme")
"""Sections that a resumed run may not change, but for some keys."""

_FREE = {"data.path", "data.cache_bytes", "data.test_limit"}
"""Those keys."""

_FEW_RANKS, _CROWDED = 16, 4  # so many ranks, or so many a core, are started as they were recorded


class Refused(ValueError):  # noqa: N818 - reads as what happened
    """A job that cannot start; the text says everything that is wrong and the remedies."""


@dataclass(frozen=True)
class Request:
    """What the user asked to run.

    Attributes:
        config: the job file of a new run.
        resume: the directory of a run to continue.
        out: the directory of a new run.
        overrides: ``--set`` options.
        lost: ranks whose death ended the attempt before, where this one restarts it; empty where
            nobody knows who it was.
    """

    config: Path | None
    resume: Path | None
    out: Path | None
    overrides: tuple[str, ...]
    lost: tuple[int, ...] | None = None

    def arguments(self) -> list[str]:
        """The command line that says the same."""
        said = ["run", *([str(self.config)] if self.config else ["--resume", str(self.resume)])]
        said += ["--out", str(self.out)] if self.out else []
        said += ["--lost", ",".join(map(str, self.lost))] if self.lost is not None else []
        return [*said, *(word for override in self.overrides for word in ("--set", override))]

    def load(self) -> JobConfig[Scheme]:
        """The job.

        Raises:
            Refused: it is not valid, or there is no run to continue.
        """
        path = self.config if self.config is not None else self._previous().config_path
        try:
            return job.load(path, self.overrides)
        except ConfigError as error:
            raise Refused(str(error)) from error

    def check_crew(self, *, simulated: bool) -> None:
        """A run goes on with the kind of workers that it had: their clocks do not add up.

        Raises:
            Refused: it had the other kind.
        """
        had = self._last_attempt().get("crew") if self.resume is not None else None
        if had is not None and (had == "simulated") != simulated:
            before, way = (
                ("the virtual cluster", "--simulate") if not simulated else ("MPI ranks", "-n")
            )
            raise Refused(
                f"{self.resume}: this run is one on {before}, and its seconds are theirs: "
                f"resume it with {way}, or start a new run"
            )

    def prepare(self, workers: int | None) -> Prepared:
        """Check everything that can be checked before training, then make the run directory.

        Args:
            workers: ranks that are workers; None: they are virtual ones.

        Raises:
            Refused: with everything that is wrong.
        """
        self.check_crew(simulated=workers is None)
        config = self.load()
        hold = None
        try:
            if workers is None:
                job.choose_device(config.device.kind, 0)
            parts = job.assemble(config)
            new = (workers or config.cluster.workers) if self.resume is None else None
            precheck.check(parts, new)
            if self.resume is None:
                early = (*BatchFiles.PATTERNS, *BEFOREHAND)
                run = RunDirectory.create(self.out, config.name, allowed=early)
                hold = run.hold()
                run.check_new()  # nobody else was here before the hold
                run.check_writable()
                return Prepared(config, run, parts, hold)
            hold = hold_again(self._previous(), os.environ)
            return self._continued(config, parts, hold)
        except (CheckpointError, RunExists, OSError, ValueError) as error:
            if hold is not None:
                hold.release()
            raise Refused(str(error)) from error

    def was_simulated(self) -> bool:
        """True when this continues a run on a virtual cluster."""
        return self.resume is not None and self._last_attempt().get("crew") == "simulated"

    def ranks(self, asked: int | None) -> int:
        """Ranks to start: those asked for, else as many as the run had that this continues.

        Raises:
            Refused: nobody has said how many, or there would be no worker, or the record of the run
                names more than one would start here unasked.
        """
        ranks = self._previous_ranks() if asked is None else asked
        if ranks is None:
            raise Refused(
                "say how many ranks: -n 3 starts a coordinator and 2 workers (or --simulate)"
            )
        if ranks == 1:
            raise Refused(
                "-n 1 would be a coordinator without workers: use -n 2 or more, or --simulate for "
                "workers in this process"
            )
        return ranks

    def _previous_ranks(self) -> int | None:
        """Ranks of the run that this continues."""
        if self.resume is None or (ranks := self._last_attempt().get("ranks")) is None:
            return None
        most = max(_FEW_RANKS, _CROWDED * (os.cpu_count() or 1))
        if not isinstance(ranks, int) or not 2 <= ranks <= most:
            raise Refused(
                f"{self._previous().attempts_path}: the last attempt had {ranks!r:.40} ranks; say with "
                "-n how many to start here"
            )
        return ranks

    def _continued(self, config: JobConfig[Scheme], parts: job.Parts, hold: Hold) -> Prepared:
        """Where the run of ``resume`` goes on; nothing is written before the checkpoint is known to fit."""
        run = self._previous()
        run.check_writable()
        saved = job.load(run.config_path)
        if (saved.optimizer, saved.scheduler) != (config.optimizer, config.scheduler):
            raise Refused(
                f"{run.path}: a resumed run goes on with the optimizer and the schedule of its "
                "checkpoint; leave them as they are, or start a new run"
            )
        if changed := _other_problem(saved, config):
            raise Refused(
                f"{run.path}: {'; '.join(changed)}; a resumed run is of the same problem and method; "
                "leave it as it was, or start a new run"
            )
        if self._last_attempt().get("data") not in (None, parts.data.train.fingerprint()):
            raise Refused(
                f"{parts.data.path}: its training samples are not those that {run.path} was started "
                "with; give it the same data set, or start a new run"
            )
        warnings: list[str] = []
        keep = config.checkpoint.keep
        store = CheckpointStore(run.checkpoints, keep, warnings.append, run.identity())
        try:
            latest = store.load_latest()
        except CheckpointError as error:
            raise Refused("\n".join([*warnings, str(error)])) from error
        if run.metrics_path.exists():
            read_metrics(run.metrics_path)
        if self.lost is not None:
            who = f"ranks {[*self.lost]}" if self.lost else "a rank"
            warnings.append(f"restarted: the attempt before has lost {who}")
        if latest is None:
            return Prepared(config, run, parts, hold, saved, None, tuple(warnings), self.lost)
        try:
            precheck.check_checkpoint(parts, latest[1])
        except (LookupError, TypeError, AttributeError) as error:
            raise Refused(
                f"{run.checkpoints}: the checkpoint of step {latest[0]} lacks a part, or has one of "
                f"another kind ({type(error).__name__}: {error}); start a new run"
            ) from error
        return Prepared(config, run, parts, hold, saved, latest[1], tuple(warnings), self.lost)

    def _previous(self) -> RunDirectory:
        assert self.resume is not None
        try:
            return RunDirectory.open(self.resume)
        except NotARun as error:
            raise Refused(str(error)) from error

    def _last_attempt(self) -> dict[str, Any]:
        try:
            attempts = read_metrics(self._previous().attempts_path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Refused(str(error)) from error
        return attempts[-1] if attempts else {}


def again(run: Path, lost: Sequence[int]) -> list[str]:
    """The command line of a restart after the loss of some ranks; all else is in the directory."""
    return Request(None, run, None, (), tuple(lost)).arguments()


def ranks_in(text: str | None) -> tuple[int, ...] | None:
    """The ranks that ``--lost`` names."""
    return None if text is None else tuple(int(rank) for rank in text.split(",") if rank)


def changes(before: JobConfig[Scheme], now: JobConfig[Scheme]) -> dict[str, tuple[Any, Any]]:
    """Old and new value of every key, such as ``train.epochs``, that differs."""
    old, new = _values(before), _values(now)
    keys = [*old, *(key for key in new if key not in old)]
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def _values(config: JobConfig[Scheme]) -> dict[str, Any]:
    """Values by their keys, two levels deep."""
    found: dict[str, Any] = {}
    for key, value in config.model_dump().items():
        if isinstance(value, dict):
            found |= {f"{key}.{name}": each for name, each in value.items()}
        else:
            found[key] = value
    return found


def _other_problem(before: JobConfig[Scheme], now: JobConfig[Scheme]) -> list[str]:
    """What makes the run of ``before`` another one, as ``key is now, and was before``.

    A data set may have moved, so its path may change; seed, rows and batch size are the
    checkpoint's to know. Of a scheme's options those may that it names.
    """
    free = _FREE | {f"scheme.{name}" for name in now.scheme.free}
    found = {
        key: f"{key} is {value_json(new)}, and was {value_json(old)}"
        for key, (old, new) in changes(before, now).items()
        if key.partition(".")[0] in _PROBLEM and key not in free
    }
    if (name := found.get("scheme.name")) is not None:  # its other keys are no news then
        found = {key: text for key, text in found.items() if not key.startswith("scheme.")}
        return [*found.values(), name]
    return [*found.values()]


@dataclass(frozen=True)
class Prepared:
    """A run that can start.

    Attributes:
        config: the job.
        run: its directory.
        parts: model, data and loss, checked.
        hold: keeps other processes out of the directory.
        before: the job of the last attempt, where the directory holds one.
        tree: the newest checkpoint of those, if they left one.
        warnings: what was found on the way to it.
        lost: ranks whose death ended the last attempt, where this is a restart.
    """

    config: JobConfig[Scheme]
    run: RunDirectory
    parts: job.Parts
    hold: Hold
    before: JobConfig[Scheme] | None = None
    tree: Tree | None = None
    warnings: tuple[str, ...] = ()
    lost: tuple[int, ...] | None = None

    def packed(self) -> str:
        """The job as text, for the other ranks."""
        return canonical_json(self.config)


def unpacked_config(packed: str) -> JobConfig[Scheme]:
    """The job that rank 0 has packed."""
    config: JobConfig[Scheme] = job.Job.model_validate_json(packed, context=TRIED)
    return config
