"""Start a job's ranks with mpirun on this host, and see them end.

mpirun gets a session of its own; signals are passed on to it, and when it has ended every process
that the job may have left behind is killed (this process adopts them, Linux). Which rank ended the
job, and how, is said by the ranks themselves and by their supervisors (``crew/supervisor.py``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psutil

from psopt.launch.flavour import Flavour, detect_flavour, find_mpirun, mpirun_argv
from psopt.launch.probe import survives_loss
from psopt.processes import adopt_orphans, kill_children, signal_at_parents_death

TERMINAL = "PSOPT_TERMINAL"
RUN_DIRECTORY = "run directory: "
"""How the coordinator begins the line that says where the run is kept."""

_HEAD = 1 << 16
_GRACE = 5.0
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")


def is_rank(environ: Mapping[str, str]) -> bool:
    """True in a process that mpirun or srun started as a rank.

    A batch script under sbatch has SLURM_PROCID too, but is no step.
    """
    if any(variable in environ for variable in _RANK_VARIABLES):
        return True
    return "SLURM_STEP_ID" in environ and environ.get("SLURM_STEP_NUM_TASKS", "1") != "1"


def is_first(environ: Mapping[str, str]) -> bool:
    """True unless mpirun or srun says that this is another rank than the first."""
    said = [environ[name] for name in (*_RANK_VARIABLES, "SLURM_PROCID") if name in environ]
    return not said or said[0] == "0"


def run_ranks(arguments: Sequence[str], ranks: int, *, tolerant: bool = False) -> int:
    """Run ``psopt ARGUMENTS`` on ``ranks`` ranks and wait for the end.

    Args:
        arguments: of every rank.
        ranks: how many.
        tolerant: go on when a rank dies, if this MPI can.

    Returns:
        The job's exit status; never 0 when it was interrupted.

    Raises:
        MpirunError: there is no mpirun, or it does not answer.
    """
    mpirun = find_mpirun()
    flavour = detect_flavour(mpirun)
    if tolerant := tolerant and flavour is Flavour.OPENMPI:
        tolerant = survives_loss(mpirun_argv(mpirun, flavour, 2, tolerant=True))
    argv = mpirun_argv(mpirun, flavour, ranks, tolerant=tolerant)
    end = _run([*argv, sys.executable, "-m", "psopt", *arguments])
    for line in _last_words(end):
        print(f"psopt: {line}", file=sys.stderr, flush=True)
    return end.status


@dataclass(frozen=True, slots=True)
class _End:
    """How a job ended.

    Attributes:
        status: of mpirun, or 128 plus the number of a signal.
        signals: that this process received and passed on.
        said: the beginning of what the job printed.
    """

    status: int
    signals: tuple[int, ...]
    said: bytes


def _run(argv: Sequence[str]) -> _End:
    """Run mpirun with its output passed through."""
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
    head = bytearray()
    pumps = [
        threading.Thread(target=_pump, args=(process.stdout, sys.stdout, head), daemon=True),
        threading.Thread(target=_pump, args=(process.stderr, sys.stderr), daemon=True),
    ]
    with _signals_passed_on(process) as received:
        for pump in pumps:
            pump.start()
        status = process.wait()
    _kill_leftovers()
    for pump in pumps:
        pump.join(_GRACE)
    if status < 0:
        status = 128 - status
    return _End(status or (128 + received[0] if received else 0), tuple(received), bytes(head))


def _terminal() -> dict[str, str]:
    """For the ranks: how wide the terminal is that they cannot see."""
    if sys.stdout is None or not sys.stdout.isatty():
        return {}
    return {TERMINAL: str(os.get_terminal_size(sys.stdout.fileno()).columns)}


def _pump(source: BinaryIO, target: object, head: bytearray | None = None) -> None:
    """Copy a stream as it comes, and remember its beginning."""
    binary = getattr(target, "buffer", None)  # there is none where stdout is closed
    while block := os.read(source.fileno(), 1 << 16):
        if head is not None and len(head) < _HEAD:
            head += block
        if binary is not None:
            with contextlib.suppress(OSError):  # a reader that went away does not end the job
                binary.write(block)
                binary.flush()


@contextlib.contextmanager
def _signals_passed_on(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Pass SIGINT, SIGTERM and SIGHUP on to mpirun; kill it when it does not end by a third one.

    One that this process is to ignore (nohup) stays ignored. Yields the signals that have come.
    """
    received: list[int] = []

    def pass_on(number: int, _: object) -> None:
        received.append(number)
        process.send_signal(signal.SIGKILL if len(received) > 2 else number)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, pass_on) for number in heeded]
    try:
        yield received
    finally:
        for number, handler in zip(heeded, before, strict=True):
            signal.signal(number, handler)


def _kill_leftovers() -> None:
    """Kill whatever the job has left running: all descendants of this process."""
    psutil.wait_procs(kill_children(), timeout=_GRACE)


def _last_words(end: _End) -> Iterator[str]:
    """After a job that did not come to its end: what ended it, and how to go on."""
    if end.signals:
        yield f"ended by {signal.Signals(end.signals[0]).name}"
    found = re.search(rb"^" + RUN_DIRECTORY.encode() + rb"(.+)$", end.said, re.MULTILINE)
    if not end.status or found is None:
        return
    from psopt.record import NotARun, RunDirectory  # slow to import, and ranks import this file

    path = os.fsdecode(found[1].rstrip(b"\r"))
    with contextlib.suppress(NotARun):
        summary = RunDirectory.open(Path(path)).read_summary()
        if summary is None or summary["status"] == "failed":
            yield f"the run is kept in {path}; go on with: psopt run --resume {shlex.quote(path)}"


def _die_with_launcher() -> None:
    signal_at_parents_death(signal.SIGTERM)
