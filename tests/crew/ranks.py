"""Starts real MPI ranks for a test, sees them end within a deadline, and leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from psopt.launch.flavour import detect_flavour, find_mpirun, mpirun_argv

ROOT = Path(__file__).resolve().parents[2]
_MARK = "PSOPT_TEST_RANKS"


class RanksError(AssertionError):
    """The ranks did not end well; the message holds what all of them printed."""


def run_ranks(
    ranks: int, arguments: Sequence[str], *, seconds: float, extra: Mapping[str, str] | None = None
) -> str:
    """Run ``python ARGUMENTS`` on ``ranks`` ranks.

    Returns:
        What they printed.

    Raises:
        RanksError: a status other than 0, the deadline passed, or a process was left behind.
    """
    mpirun, mark = find_mpirun(), uuid.uuid4().hex
    argv = [*mpirun_argv(mpirun, detect_flavour(mpirun), ranks), sys.executable, *arguments]
    process = subprocess.Popen(
        argv,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", _MARK: mark, **(extra or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    problem = ""
    try:
        output = process.communicate(timeout=seconds)[0]
        problem = f"status {process.returncode}" if process.returncode else ""
        if left := _survivors(mark, 5.0):
            problem += f" left behind: {left}"
    except subprocess.TimeoutExpired:
        problem = f"not done after {seconds:g} s"
        _kill(mark, process)
        output = process.communicate()[0]
    finally:
        _kill(mark, process)
    if problem:
        raise RanksError(f"{' '.join(argv)}: {problem}\n{output}")
    return output


def _marked(mark: str) -> list[psutil.Process]:
    """Processes that the ranks' launcher started, at whatever depth."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _survivors(mark: str, seconds: float) -> list[psutil.Process]:
    """Those that are still there after a while."""
    end = time.monotonic() + seconds
    while (left := _marked(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def _kill(mark: str, process: subprocess.Popen[str]) -> None:
    left = _marked(mark)
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(left, timeout=5.0)
    if process.poll() is None:
        process.kill()
