"""Start mpirun on this host, pass its output and signals on, and see the ranks end.

mpirun gets a session of its own; signals are passed on to it, and when it has ended every process
that the job may have left behind is killed (this process adopts them, Linux). Which rank ended the
job, and how, is said by the ranks themselves and by their supervisors (``crew/supervisor.py``);
what that means for the job is in ``attempts.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import psutil

from psopt.obituary import FAILED, Death, death_in
from psopt.processes import (
    RANK_VARIABLES,
    adopt_orphans,
    kill_children,
    rank_of,
    signal_at_parents_death,
)

TERMINAL = "PSOPT_TERMINAL"
RUN_DIRECTORY = "run directory: "
"""How the coordinator begins the line that says where the run is kept."""

_LONGEST = 1 << 12  # bytes of a line that matter
_GRACE = 5.0
_LOOK = 0.2  # seconds between looks at the ranks
_MISSING = 6.0  # seconds for the ranks of a job that does not begin to end together


def is_rank(environ: Mapping[str, str]) -> bool:
    """True in a process that mpirun or srun started as a rank.

    A batch script under sbatch has SLURM_PROCID too, but is no step.
    """
    if rank_of(environ) is not None:
        return True
    return "SLURM_STEP_ID" in environ and environ.get("SLURM_STEP_NUM_TASKS", "1") != "1"


def is_first(environ: Mapping[str, str]) -> bool:
    """True unless mpirun or srun says that this is another rank than the first."""
    said = [environ[name] for name in (*RANK_VARIABLES, "SLURM_PROCID") if name in environ]
    return not said or said[0] == "0"


def alone(environ: Mapping[str, str]) -> str:
    """What to say to a rank that is the only one of its world."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1":
        return (
            f"srun has started {tasks} processes, but each sees a world of 1: srun's --mpi does not fit "
            "this MPI; take another of `srun --mpi=list` (batch.mpi for `psopt submit`), such as pmi2 for "
            "MPICH and pmix for Open MPI"
        )
    return (
        "a job needs a coordinator and at least one worker: start 2 ranks or more, or use --simulate for "
        "workers in this process"
    )


@dataclass(slots=True)
class Heard:
    """What was heard of a job while its output went by.

    Attributes:
        directory: of the run, as the coordinator has named it.
        deaths: that have ended the job.
        failed: whether a rank ended the job by an error of its own, before anybody had died.
    """

    directory: str | None = None
    deaths: list[Death] = field(default_factory=list)
    failed: bool = False

    def output(self, line: bytes) -> None:
        """A line of standard output."""
        if self.directory is None and line.startswith(RUN_DIRECTORY.encode()):
            self.directory = os.fsdecode(line.removeprefix(RUN_DIRECTORY.encode()).rstrip(b"\r"))

    def errors(self, line: bytes) -> None:
        """A line of standard error."""
        if (death := death_in(line)) is not None:
            self.deaths.append(death)
        elif FAILED.encode() in line and not self.deaths:
            self.failed = True


class Signals:
    """SIGINT, SIGTERM and SIGHUP to this process, which are meant for the job.

    They are passed on to mpirun, which is killed when it does not end by a third one. A first SIGTERM
    asks the coordinator to stop, with a checkpoint. One that this process is to ignore (nohup) stays ignored.

    Attributes:
        received: those that have come.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = Heard()

    @contextlib.contextmanager
    def heeded(self) -> Iterator[Signals]:
        """Until the end of the block."""
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        heeded = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
        before = [signal.signal(number, self._come) for number in heeded]
        try:
            yield self
        finally:
            for number, handler in zip(heeded, before, strict=True):
                signal.signal(number, handler)

    def wait(self, process: subprocess.Popen[bytes], heard: Heard) -> int:
        """The status of ``process`` at its end; until then the signals are for it."""
        self._process, self._heard = process, heard
        for count, number in enumerate(self.received, start=1):  # while it was being started
            self._pass_on(number, count)
        try:
            ranks = _Ranks(process.pid)
            while heard.directory is None and not ranks.are_missing():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_LOOK)
            if heard.directory is None:
                print("psopt: a rank has died while the job began", file=sys.stderr, flush=True)
                process.kill()
            return process.wait()
        finally:
            self._process = None

    def _come(self, number: int, _: object) -> None:
        self.received.append(number)
        self._pass_on(number, len(self.received))

    def _pass_on(self, number: int, count: int) -> None:
        if self._process is None:
            return
        if number == signal.SIGTERM and count == 1 and (pid := _coordinator(self._heard)):
            os.kill(pid, number)
        else:
            self._process.send_signal(signal.SIGKILL if count > 2 else number)


class _Ranks:
    """The processes of an mpirun on this host, until the job has begun.

    One that dies before it has a supervisor (``crew/supervisor.py``) is missed by nobody where mpirun goes
    on without it, and the others wait for it for ever, in MPI_Init.
    """

    def __init__(self, mpirun: int) -> None:
        self._mpirun, self._most, self._since = mpirun, 0, 0.0

    def are_missing(self) -> bool:
        """Whether there have been fewer than before for a while; ranks that refuse a job end together."""
        count, now = 0, time.monotonic()
        with contextlib.suppress(psutil.Error):
            count = len(psutil.Process(self._mpirun).children())
        self._most = max(count, self._most)
        if count == self._most:
            self._since = now
        return now - self._since > _MISSING


def _coordinator(heard: Heard) -> int | None:
    """The process of rank 0, once the ranks have met; None: it has none here."""
    if heard.directory is None:
        return None
    from psopt.record import RunDirectory  # slow to import, and ranks import this room

    try:
        ranks = json.loads(RunDirectory(Path(heard.directory)).ranks_path.read_bytes())
        (pid,) = (entry["pid"] for entry in ranks if entry["rank"] == 0)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    # The file may be that of an earlier attempt.
    return pid if pid in {child.pid for child in psutil.Process().children(True)} else None


def start(argv: Sequence[str], signals: Signals) -> tuple[int, Heard]:
    """Run mpirun with its output passed through.

    Returns:
        Its status, or 128 plus the number of the signal that has ended it; and what was heard.
    """
    adopt_orphans()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_terminal()},
        start_new_session=True,
        preexec_fn=_die_with_launcher,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    heard = Heard()
    pumps = [
        threading.Thread(target=_pump, args=arguments, daemon=True)
        for arguments in (
            (process.stdout, sys.stdout, heard.output),
            (process.stderr, sys.stderr, heard.errors),
        )
    ]
    for pump in pumps:
        pump.start()
    status = signals.wait(process, heard)
    _kill_leftovers()
    for pump in pumps:
        pump.join(_GRACE)
    return (128 - status if status < 0 else status), heard


def _terminal() -> dict[str, str]:
    """For the ranks: how wide the terminal is that they cannot see."""
    if sys.stdout is None or not sys.stdout.isatty():
        return {}
    return {TERMINAL: str(os.get_terminal_size(sys.stdout.fileno()).columns)}


def _pump(source: BinaryIO, target: object, heed: Callable[[bytes], None]) -> None:
    """Copy a stream as it comes, and hand over its lines."""
    binary = getattr(target, "buffer", None)  # there is none where stdout is closed
    rest = b""
    while block := os.read(source.fileno(), 1 << 16):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            heed(line)
        rest = rest[-_LONGEST:]
        if binary is not None:
            with contextlib.suppress(OSError):  # a reader that went away does not end the job
                binary.write(block)
                binary.flush()
    heed(rest)


def _kill_leftovers() -> None:
    """Kill whatever the job has left running: all descendants of this process."""
    psutil.wait_procs(kill_children(), timeout=_GRACE)


def _die_with_launcher() -> None:
    signal_at_parents_death(signal.SIGTERM)
