"""Start a job's ranks with mpirun on this host, see them end, and say who ended the job.

mpirun gets a session of its own; signals are passed on to it, and when it has ended every process
that the job may have left behind is killed (this process adopts them, Linux). When a rank was
killed, mpirun names a process: the table of ranks that rank 0 wrote at the start says which rank
that was.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

from psopt.launch.flavour import detect_flavour, find_mpirun, mpirun_argv

RANKS_FILE = "PSOPT_RANKS_FILE"
LAUNCHED = "PSOPT_LAUNCHED"
TERMINAL = "PSOPT_TERMINAL"

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TAIL = 1 << 16
_GRACE = 5.0
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_DEATHS = (
    re.compile(rb"PID (?P<pid>\d+) RUNNING AT \S+\s*=?\s*EXIT CODE: (?P<code>\d+)"),
    re.compile(
        rb"process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node \S+ exited\s+on\s+signal "
        rb"(?P<code>\d+)"
    ),
    re.compile(rb"process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node \S+ exiting"),
)


def is_rank(environ: Mapping[str, str]) -> bool:
    """True in a process that mpirun or srun started as a rank.

    A batch script under sbatch has SLURM_PROCID too, but is no step.
    """
    if any(variable in environ for variable in _RANK_VARIABLES):
        return True
    return "SLURM_STEP_ID" in environ and environ.get("SLURM_STEP_NUM_TASKS", "1") != "1"


def run_ranks(arguments: Sequence[str], ranks: int) -> int:
    """Run ``psopt ARGUMENTS`` on ``ranks`` ranks and wait for the end.

    Returns:
        The job's exit status; never 0 when a rank was lost.

    Raises:
        MpirunError: there is no mpirun, or it does not answer.
    """
    mpirun = find_mpirun()
    argv = mpirun_argv(mpirun, detect_flavour(mpirun), ranks)
    with tempfile.TemporaryDirectory(prefix="psopt-") as folder:
        table = Path(folder) / "ranks.json"
        extra = {LAUNCHED: str(os.getpid()), RANKS_FILE: str(table)}
        if sys.stdout.isatty():
            extra[TERMINAL] = str(os.get_terminal_size(sys.stdout.fileno()).columns)
        status, tail = _run([*argv, sys.executable, "-m", "psopt", *arguments], extra)
        death = _explain(tail, table)
    if death is not None:
        print(f"psopt: {death}; the job was ended", file=sys.stderr, flush=True)
        return status or 1
    return status


def _run(argv: Sequence[str], extra: Mapping[str, str]) -> tuple[int, bytes]:
    """Run mpirun with its output passed through; exit status, and the end of what it printed."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **extra},
        start_new_session=True,
        preexec_fn=_die_with_launcher,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    tail = bytearray()
    pumps = [
        threading.Thread(target=_pump, args=(source, target.buffer, tail), daemon=True)
        for source, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
    ]
    with _signals_passed_on(process):
        for pump in pumps:
            pump.start()
        status = process.wait()
    _kill_leftovers()
    for pump in pumps:
        pump.join(_GRACE)
    return (status if status >= 0 else 128 - status), bytes(tail)


def _pump(source: BinaryIO, target: BinaryIO, tail: bytearray) -> None:
    """Copy a stream as it comes, and remember its end."""
    while block := os.read(source.fileno(), 1 << 16):
        with contextlib.suppress(OSError):  # a reader of ours that went away does not end the job
            target.write(block)
            target.flush()
        tail += block
        del tail[:-_TAIL]


@contextlib.contextmanager
def _signals_passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass SIGINT, SIGTERM and SIGHUP on to mpirun; kill it when it does not end by a third one."""
    received = 0

    def pass_on(number: int, _: object) -> None:
        nonlocal received
        received += 1
        process.send_signal(signal.SIGKILL if received > 2 else number)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, pass_on) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _kill_leftovers() -> None:
    """Kill whatever the job has left running: all descendants of this process."""
    left = psutil.Process().children(recursive=True)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=_GRACE)


def _explain(tail: bytes, table: Path) -> str | None:
    """Which rank was killed, from mpirun's last words; None when it names none."""
    for pattern in _DEATHS:
        found = pattern.search(tail)
        if found is None:
            continue
        groups = found.groupdict()
        pid, rank = int(groups["pid"]), groups.get("rank")
        who = _name(pid, None if rank is None else int(rank), table)
        code = int(groups["code"]) if "code" in groups else 0
        return f"{who} {_cause(code)}"
    return None


def _cause(code: int) -> str:
    try:
        return f"was killed by signal {code} ({signal.Signals(code).name})"
    except ValueError:
        return f"ended with status {code}" if code else "left without finishing"


def _name(pid: int, rank: int | None, table: Path) -> str:
    """``rank 2 (worker 1) on host, process 123``."""
    host = ""
    with contextlib.suppress(OSError, ValueError):
        for entry in json.loads(table.read_text(encoding="utf-8")):
            if entry["pid"] == pid or entry["rank"] == rank:
                rank, host = entry["rank"], f" on {entry['host']}"
    if rank is None:
        return f"a rank (process {pid})"
    role = "coordinator" if rank == 0 else f"worker {rank - 1}"
    return f"rank {rank} ({role}){host}, process {pid},"


def _die_with_launcher() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):  # not Linux: mpirun's own clean-up has to do
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
