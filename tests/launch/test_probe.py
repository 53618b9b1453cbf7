from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from psopt.launch import probe as module
from psopt.launch.finding import Level
from psopt.launch.flavour import Flavour, detect_flavour, find_mpirun, mpirun_argv
from psopt.launch.probe import RANKS, Outcome, judge, probe, run_with_deadline

READING = (
    'psopt-probe {"size": %d, "total": %d, "library": "MPICH Version: 5.0.2", "threads": "multiple", '
    '"mpi4py": "4.1.2"}\n'
)


def test_two_ranks_that_talk() -> None:
    finding = judge(Outcome(0, "hello\n" + READING % (2, 2), "a warning"), Flavour.MPICH, 60)
    assert finding.level is Level.OK
    assert "MPICH Version: 5.0.2, thread level multiple, mpi4py 4.1.2" in finding.detail


def test_a_world_of_one_names_both_mpis() -> None:
    finding = judge(Outcome(0, READING % (1, 1) * 2, ""), Flavour.OPENMPI, 60)
    assert finding.level is Level.FAIL
    assert "each sees a world of 1" in finding.detail
    assert "mpirun is of Open MPI, mpi4py uses MPICH Version" in finding.detail
    assert "have to be of the same MPI" in finding.remedy


@pytest.mark.parametrize(
    ("outcome", "detail", "remedy"),
    [
        (Outcome(None, "", ""), "no answer from 2 ranks within 60 s", "resolves its own name"),
        (Outcome(0, READING % (2, 3), ""), "added their ones to 3", "use another one"),
        (Outcome(0, "", ""), "status 0", "same MPI"),
        (
            Outcome(16, "", "-----\nFatal error in MPI_Init\nsee above\n"),
            "status 16; it said: Fatal error in MPI_Init",
            "same MPI",
        ),
        (
            Outcome(1, "", "ModuleNotFoundError: No module named 'mpi4py'"),
            "No module named 'mpi4py'",
            "pip install 'psopt[mpich]'",
        ),
        (
            Outcome(1, "", "RuntimeError: cannot load MPI library\nlibmpi.so.12: cannot open"),
            "cannot load MPI library",
            "load an MPI module",
        ),
    ],
)
def test_failures(outcome: Outcome, detail: str, remedy: str) -> None:
    finding = judge(outcome, Flavour.MPICH, 60)
    assert finding.level is Level.FAIL
    assert detail in finding.detail
    assert remedy in finding.remedy


def test_ranks_do_not_inherit_this_process_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_MCA_btl", "self")
    outcome = run_with_deadline([sys.executable, "-c", "import os; print(*os.environ)"], 30)
    names = outcome.stdout.split()
    assert "OMPI_MCA_btl" in names
    assert "PMI_RANK" not in names
    assert "OMPI_COMM_WORLD_SIZE" not in names


def test_deadline_ends_the_whole_group(
    fake_program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the program ignores a polite request and has children."""
    monkeypatch.setattr(module, "_GRACE", 0.5)
    program = fake_program("mpirun", "trap '' TERM\nsleep 61.25 &\necho partial\nwait\nwait\nwait")
    outcome = run_with_deadline([str(program)], 0.5)
    assert outcome == Outcome(None, "partial\n", "")
    assert _gone(["sleep", "61.25"])


def test_an_mpirun_that_cannot_run() -> None:
    finding = probe(["/nonexistent/mpirun", "-n", "2"], Flavour.MPICH)
    assert finding.level is Level.FAIL
    assert "cannot execute /nonexistent/mpirun: No such file or directory" in finding.detail


def test_processes_without_an_mpi_in_common(fake_program: Callable[[str, str], Path]) -> None:
    """A launcher that only starts processes, as srun with the wrong --mpi does."""
    launcher = fake_program("mpirun", 'shift 2\n"$@" &\n"$@"\nwait')
    finding = probe([str(launcher), "-n", "2"], Flavour.OTHER)
    assert finding.level is Level.FAIL
    assert "each sees a world of 1" in finding.detail


@pytest.mark.mpi
def test_real_ranks() -> None:
    mpirun = find_mpirun()
    flavour = detect_flavour(mpirun)
    finding = probe(mpirun_argv(mpirun, flavour, RANKS), flavour)
    assert finding.level is Level.OK, finding
    assert flavour is not Flavour.OTHER
    assert flavour.value in finding.detail


@pytest.mark.mpi
def test_real_ranks_that_hang_are_ended() -> None:
    mpirun = find_mpirun()
    argv = mpirun_argv(mpirun, detect_flavour(mpirun), RANKS)
    program = "from mpi4py import MPI; import time; time.sleep(62.5)"
    outcome = run_with_deadline([*argv, sys.executable, "-c", program], 5)
    assert outcome.status is None
    assert _gone([sys.executable, "-c", program])


def _gone(command: list[str], seconds: float = 10) -> bool:
    """Whether no process with this command line is left, at the latest after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        running = [
            process
            for process in psutil.process_iter(["cmdline", "status"])
            if process.info["cmdline"] == command and process.info["status"] != "zombie"
        ]
        if not running:
            return True
        time.sleep(0.1)
    return False
