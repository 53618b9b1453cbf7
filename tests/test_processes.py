"""What processes ask of the kernel about each other."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from psopt.processes import fine_timers, kill_children

PACKAGE = Path(__file__).resolve().parent.parent / "psopt"
_PR_GET_TIMERSLACK = 30

linux = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux")


@pytest.mark.parametrize("call", [r"\.prctl\(", r"\.children\(recursive", r"\.wake_on_time\("])
def test_one_place_asks(call: str) -> None:
    """A second helper for the same thing drifts from the first."""
    found = [
        str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if re.search(call, p.read_text())
    ]
    assert set(found) <= {"processes.py"}


@linux
def test_fine_timers() -> None:
    fine_timers()
    assert ctypes.CDLL(None).prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0) == 1000


def test_children_and_theirs_are_killed() -> None:
    """And named, so that whoever killed them can wait for their end."""
    words = ["bash", "-c", "sleep 600 & echo $!; wait"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        killed = kill_children()
        assert {child.pid, grandchild} <= {process.pid for process in killed}
        assert psutil.wait_procs(killed, timeout=10)[1] == []


def test_nothing_large_is_loaded() -> None:
    """A supervisor imports it before its rank is forked."""
    code = "import sys, psopt.processes; print('torch' in sys.modules or 'h5py' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
