"""Real jobs for tests: each in a session of its own, with a deadline, and no process left afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from psopt.launch.flavour import Flavour, detect_flavour, find_mpirun, mpirun_argv
from tests.mpi.faulty import EVENT
from tests.training import ROOT, job_file, tiny

MARK = "PSOPT_TEST_JOB"
TIMES = "PSOPT_TEST_TIMES"
"""Names a file that gets a line for each failure: how long the job took to end."""
HOST = socket.gethostname()
START = 120.0
"""Seconds that a job has to come to what a test waits for, on a host that does other things too."""
FAST = 10.0
"""Seconds within which a job has to end after a failure."""

MPIRUN = find_mpirun()
FLAVOUR = detect_flavour(MPIRUN)
OPENMPI = FLAVOUR is Flavour.OPENMPI
"""Whose MPI it is. What does not depend on that is tried with one only, for its time."""

SCHEMES: dict[str, dict[str, Any]] = {
    "asp": {"name": "asp"},
    "wasp": {"name": "wasp", "weight_on": "rate", "sync_every": 3},
    "bsp": {"name": "bsp", "exchange": "server"},
    "collective": {"name": "bsp", "exchange": "collective"},
}


def launcher(ranks: int = 3) -> list[str]:
    """`psopt run -n RANKS`; the job follows."""
    return [str(Path(sys.executable).parent / "psopt"), "run", "-n", str(ranks)]


def module(ranks: int = 3) -> list[str]:
    """`mpirun -n RANKS python -m psopt run`."""
    return [*_mpirun(ranks), sys.executable, "-m", "psopt", "run"]


def command(ranks: int = 3) -> list[str]:
    """`mpirun -n RANKS psopt run`."""
    return [*_mpirun(ranks), str(Path(sys.executable).parent / "psopt"), "run"]


def _mpirun(ranks: int) -> list[str]:
    return mpirun_argv(MPIRUN, FLAVOUR, ranks)


def failing_job(folder: Path, scheme: str, **kwargs: Any) -> Path:
    """The file of a job that does not end by itself; `kwargs` are those of `faulty.build`."""
    return job_file(
        folder,
        tiny(folder),
        model={"factory": "tests.mpi.faulty:build", "kwargs": kwargs},
        scheme=SCHEMES[scheme],
        optimizer={"name": "SGD", "lr": 0.01},
        train={"epochs": 100_000, "batch_size": 2},
        evaluate={"every_steps": 7},
        log={"every_steps": 100},
    )


class Running:
    """A job that has been started.

    Args:
        argv: what to run.
        folder: its working directory, and where its output goes.
        environment: added to this process's.
        options: of `subprocess.Popen`.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self._mark, self._folder = uuid.uuid4().hex, folder
        self._event = folder / f"event-{self._mark}"
        self._output = folder / f"output-{self._mark}"
        self._argv = [str(word) for word in argv]
        added = {
            MARK: self._mark,
            EVENT: str(self._event),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            **(environment or {}),
        }
        with self._output.open("wb") as output:
            given = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, **options}
            self.process = subprocess.Popen(
                self._argv,
                cwd=folder,
                env={**os.environ, **added},
                start_new_session=True,
                **given,
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self._left(), self.process]:
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        """What the job has printed so far."""
        return self._output.read_text(errors="replace")

    def until_event(self) -> float:
        """Wait for the fault; its time."""
        self._wait(self._event.is_file, START, "its fault", alive=True)
        self._wait(lambda: bool(self._event.read_text()), 1.0, "its fault's time")
        return float(self._event.read_text())

    def until_under_way(self, run: Path, attempt: int = 1) -> None:
        """Wait until this attempt has saved a checkpoint."""

        def under_way() -> bool:
            with contextlib.suppress(FileNotFoundError):
                begun, met = run / "attempts.jsonl", run / "ranks.json"
                since = met.stat().st_mtime_ns
                if len(begun.read_text().splitlines()) == attempt and (
                    since > begun.stat().st_mtime_ns
                ):
                    saved = (run / "checkpoints").glob("[!.]*")
                    return any(path.stat().st_mtime_ns > since for path in saved)
            return False

        self._wait(under_way, START, f"a checkpoint of attempt {attempt}", alive=True)

    def until_said(self, text: str) -> None:
        """Wait until the job has printed ``text``."""
        self._wait(lambda: text in self.said, START, repr(text), alive=True)

    def below(self) -> list[psutil.Process]:
        """The processes that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def pid(self, run: Path, rank: int) -> int:
        """The process of a rank."""
        (entry,) = (e for e in json.loads((run / "ranks.json").read_text()) if e["rank"] == rank)
        return int(entry["pid"])

    def send(self, number: signal.Signals, pid: int | None = None) -> float:
        """Send a signal, to the process that was started if to no other; the time."""
        os.kill(pid or self.process.pid, number)
        return time.time()

    def ends(self, since: float | None = None) -> int:
        """See the job end, within `FAST` seconds of a failure where there was one; the status.

        Nothing of it may be left then.
        """
        seconds = START if since is None else max(0.1, since + FAST - time.time())
        self._wait(lambda: self.process.poll() is not None, seconds, "its end")
        self._wait(lambda: not self._left(), 3.0, "the end of all its processes")
        status = int(self.process.returncode)
        if since is not None:
            took = time.time() - since
            assert took < FAST, self.said
            with Path(os.environ.get(TIMES, os.devnull)).open("a") as times:
                times.write(
                    f"{took:5.2f} s  status {status:4}  {os.environ['PYTEST_CURRENT_TEST']}\n"
                )
        return status

    def _wait(
        self, done: Callable[[], bool], seconds: float, what: str, *, alive: bool = False
    ) -> None:
        """Wait for something that happens in time or, ``alive``, before the job ends."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end or (alive and self.process.poll() is not None):
                left = "".join(f"\n  left: {process}" for process in self._left())
                raise AssertionError(
                    f"{' '.join(self._argv)}: waited {seconds:.1f} s for {what}; status "
                    f"{self.process.poll()}{left}\n{self.said}"
                )
            time.sleep(0.02)

    def _left(self) -> list[psutil.Process]:
        """The job's processes, at whatever depth and in whatever session."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mine = process.environ().get(MARK) == self._mark
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def run(argv: Sequence[str | Path], folder: Path, **options: Any) -> tuple[int, str]:
    """Run a job to its end; its status, and what it printed."""
    with Running(argv, folder, **options) as job:
        return job.ends(), job.said
