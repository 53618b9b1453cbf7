"""Faults on real ranks: the job is run again and again, and each time something happens to a worker.

A run without faults comes first: its time is the range from which moments are drawn, and its bits are
those that a synchronous scheme has to end with. What is drawn depends on the seed only; when exactly
a signal arrives depends on the machine, as on any cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt.config import JobConfig

KINDS = ("kill", "message", "stop", "slow", "damage", "poison")
"""What can happen: SIGKILL; death while a reply is sent; SIGSTOP past the deadline, then SIGCONT; short
stops; a damaged message; gradients that are not numbers."""

IN_ONE_JOB = ("message", "damage")
"""Those that would come again after each restart."""

_DEADLINE = {"factor": 10.0, "least": 2.0, "first": 600.0}
_POLL = 0.005
_GONE = re.compile(r"warning: worker \d+ (has died|has not answered|is behind)|psopt: lost: ")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one run.

    Attributes:
        fault: its kind; ``none`` of the run without.
        worker: to whom it happened.
        status: exit status; None: it did not end in time and was killed.
        seconds: from start to end.
        training: seconds of training.
        notice: seconds from the fault until the coordinator said so; None where it did not have to.
        summary: of the run; empty where it has none.
    """

    fault: str
    worker: int | None
    status: int | None
    seconds: float
    training: float
    notice: float | None
    summary: dict[str, Any]


def stragglers_of(config: JobConfig[Any], workers: int) -> str:
    """The override that leaves a job those of its stragglers that are there."""
    slow = {w: times for w, times in config.cluster.stragglers.items() if w < workers}
    return f"cluster.stragglers={json.dumps(slow)}"


class Runs:
    """Runs of one job.

    Args:
        config: its file.
        ranks: how many to start.
        folder: where the runs are kept.
        overrides: keys of the job, as for ``psopt run --set``.
        patience: seconds after which a run counts as hung.
    """

    def __init__(
        self, config: Path, ranks: int, folder: Path, overrides: Sequence[str], patience: float
    ) -> None:
        self._config, self._ranks, self._folder = config, ranks, folder
        self._overrides, self._patience = overrides, patience
        folder.mkdir(parents=True, exist_ok=True)
        self.calm = self._run("none", "none", None, random.Random(0), ())

    def trials(self, kinds: Sequence[str], seed: int, count: int) -> Iterator[Outcome]:
        """``count`` runs, whose faults take turns."""
        for number in range(count):
            draw = random.Random(f"{seed} {number}")
            kind, worker = kinds[number % len(kinds)], draw.randrange(self._ranks - 1)
            yield self._run(
                f"{number:03d}-{kind}", kind, worker, draw, self._options(kind, worker, draw)
            )

    def _options(self, kind: str, worker: int, draw: random.Random) -> list[str]:
        """Keys of the job that make the fault, where a signal does not."""
        faults: dict[str, Any] = {"seed": draw.randrange(1 << 30)}
        if kind == "message":
            replies = max(2, self.calm.summary.get("steps", 2) // max(1, self._ranks - 1))
            faults["deaths_in_message"] = {worker: draw.randint(2, replies)}
        if kind == "damage":
            faults["damaged"] = {worker: 0.05}
        if kind == "poison":
            faults["poisoned"] = {worker: 0.01}
        return [
            f"cluster.faults={json.dumps(faults)}",
            f"cluster.digest={json.dumps(kind == 'damage')}",
        ]

    def _run(
        self, name: str, kind: str, worker: int | None, draw: random.Random, options: Sequence[str]
    ) -> Outcome:
        out, log = self._folder / name, self._folder / f"{name}.log"
        given = [
            f"cluster.deadline={json.dumps(_DEADLINE)}",
            f"cluster.workers={self._ranks - 1}",
            "on_bad_update=skip",
            *self._overrides,
        ]
        argv = [sys.executable, "-m", "psopt", "run", self._config, "-n", self._ranks, "--out", out]
        for option in [*given, *options]:
            argv += ["--set", option]
        began = time.monotonic()
        with log.open("wb") as to:
            process = subprocess.Popen(
                [str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=to, stderr=to
            )
            try:
                notice = self._harm(process, kind, worker, draw, out, log)
                status = process.wait(max(1.0, began + self._patience - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30.0)
                process.kill()
                process.wait()
                return Outcome(kind, worker, None, time.monotonic() - began, 0.0, None, {})
        summary = _json(out / "summary.json") or {}
        seconds = time.monotonic() - began
        return Outcome(kind, worker, status, seconds, summary.get("seconds", 0.0), notice, summary)

    def _harm(
        self,
        process: subprocess.Popen[bytes],
        kind: str,
        worker: int | None,
        draw: random.Random,
        out: Path,
        log: Path,
    ) -> float | None:
        """Let it happen, at some moment of the training; seconds until it was noticed."""
        if kind in ("none", "damage", "poison"):
            return None
        assert worker is not None
        if kind == "message":
            _wait(process, lambda: "was killed by signal" in _text(log), self._patience)
            return _noticed(process, log, time.monotonic(), self._patience)
        if not _wait(process, (out / "ranks.json").exists, self._patience):
            return None
        time.sleep(draw.uniform(0.0, 0.8) * self.calm.training)
        victim = next(e["pid"] for e in _json(out / "ranks.json") if e["rank"] == worker + 1)
        with contextlib.suppress(ProcessLookupError):
            if kind == "slow":
                for _ in range(5):
                    os.kill(victim, signal.SIGSTOP)
                    time.sleep(0.3)
                    os.kill(victim, signal.SIGCONT)
                    time.sleep(0.1)
                return None
            os.kill(victim, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
            notice = _noticed(process, log, time.monotonic(), self._patience)
            if kind == "stop":
                time.sleep(_DEADLINE["least"])
                os.kill(victim, signal.SIGCONT)
            return notice
        return None  # it had ended


def right(outcome: Outcome, calm: Outcome, *, synchronous: bool) -> str:
    """What is wrong with an outcome; empty: nothing."""
    found = outcome.summary
    if outcome.status is None:
        return "hung"
    if outcome.status != 0 or found.get("status") != "completed":
        return f"status {outcome.status}: {found.get('reason', 'no summary')}"
    if found["samples"] + found["refused_samples"] != calm.summary["samples"]:
        return f"{found['samples']} samples, not {calm.summary['samples']}"
    if (
        synchronous
        and not found["refused_updates"]
        and found["parameters_sha256"] != calm.summary["parameters_sha256"]
    ):
        return "other parameters than without faults"
    if outcome.fault == "slow" and found["lost_workers"]:
        return "a slow worker was lost"
    return ""


def _noticed(
    process: subprocess.Popen[bytes], log: Path, since: float, most: float
) -> float | None:
    """Seconds until the coordinator has said that a worker is gone."""
    if _wait(process, lambda: _GONE.search(_text(log)) is not None, most):
        return time.monotonic() - since
    return None


def _wait(process: subprocess.Popen[bytes], done: Any, most: float) -> bool:
    end = time.monotonic() + most
    while process.poll() is None and time.monotonic() < end:
        if done():
            return True
        time.sleep(_POLL)
    return bool(done())


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _json(path: Path) -> Any:
    with contextlib.suppress(FileNotFoundError):
        return json.loads(path.read_text())
    return None
