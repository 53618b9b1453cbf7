"""Starting mpirun and seeing it end; a shell script stands in for mpirun."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from psopt.launch.mpirun import alone, is_first, is_rank
from tests.launch.launching import Program, launch, started


def wait_for(path: Path, seconds: float = 30) -> str:
    end = time.monotonic() + seconds
    while not (path.is_file() and path.read_text()):
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)
    return path.read_text()


def test_a_rank_that_is_alone_is_told_why() -> None:
    assert "start 2 ranks or more" in alone({})
    assert "start 2 ranks or more" in alone({"SLURM_STEP_NUM_TASKS": "1"})
    said = alone({"SLURM_STEP_NUM_TASKS": "8"})
    assert said.startswith("srun has started 8 processes, but each sees a world of 1: srun's --mpi")
    assert "pmi2 for MPICH and pmix for Open MPI" in said


def test_ranks_are_told_by_their_environment() -> None:
    assert is_rank({"PMI_RANK": "0"})
    assert is_rank({"OMPI_COMM_WORLD_RANK": "1"})
    assert is_rank({"PMIX_RANK": "1"})
    assert is_rank({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1"})
    assert not is_rank({})
    assert not is_rank({"SLURM_PROCID": "0", "SLURM_NTASKS": "3"})  # a batch script
    assert not is_rank({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"})  # srun --pty bash


def test_the_first_rank_speaks_for_all() -> None:
    assert is_first({})
    assert is_first({"PMI_RANK": "0", "SLURM_PROCID": "7"})
    assert not is_first({"PMI_RANK": "2", "SLURM_PROCID": "0"})
    assert not is_first({"SLURM_PROCID": "2"})


def test_command_line_and_bytes_pass_through(fake_program: Program) -> None:
    awkward = "a 'b' (c) \"d\" $HOME \n e"
    program = started(
        fake_program, r"""printf '%s|' "$@"; printf '\377\0no newline'; printf 'é\r' >&2"""
    )
    out, err = launch(program, "run", awkward).communicate(timeout=30)
    words = ["-n", "4", sys.executable, "-m", "psopt", "run", awkward]
    assert out == ("|".join(words) + "|").encode() + b"\xff\0no newline"
    assert err == "é\r".encode()


def test_large_output_arrives_whole(fake_program: Program) -> None:
    program = started(fake_program, "head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2")
    out, err = launch(program).communicate(timeout=30)
    assert (len(out), len(err)) == (3_000_000, 2_000_000)


@pytest.mark.parametrize(("end", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_status(fake_program: Program, end: str, status: int) -> None:
    process = launch(started(fake_program, end))
    process.communicate(timeout=30)
    assert process.returncode == status


def test_output_that_nobody_reads(fake_program: Program) -> None:
    """`psopt run ... | head -1`: the job goes on."""
    process = launch(started(fake_program, "echo one; sleep 0.3; echo two; exit 5"))
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(30) == 5
    assert process.stderr is not None
    process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(fake_program: Program, tmp_path: Path, number: int) -> None:
    """And an interrupted job has no status 0, whatever mpirun says."""
    name = signal.Signals(number).name
    trap = f"trap 'echo had {name}; exit 0' {name.removeprefix('SIG')}"
    program = started(
        fake_program, f"{trap}\necho ready >{tmp_path}/ready\nwhile :; do sleep 0.05; done"
    )
    process = launch(program)
    wait_for(tmp_path / "ready")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert out == f"had {name}\n".encode()
    assert err == f"psopt: ended by {name}\n".encode()
    assert process.returncode == 128 + number


def test_a_signal_that_is_to_be_ignored_stays_so(fake_program: Program, tmp_path: Path) -> None:
    """nohup."""
    program = started(fake_program, f"echo ready >{tmp_path}/ready\nsleep 1\nexit 4")
    process = launch(program, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_for(tmp_path / "ready")
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 4


def test_an_mpirun_that_does_not_listen_is_killed(fake_program: Program, tmp_path: Path) -> None:
    body = f"trap '' TERM\necho ready >{tmp_path}/ready\nwhile :; do sleep 0.05; done"
    process = launch(started(fake_program, body))
    wait_for(tmp_path / "ready")
    for _ in range(3):
        process.terminate()
        time.sleep(0.2)
    assert process.wait(30) == 143  # which was asked for
    process.communicate()


@pytest.mark.parametrize("begun", [False, True])
def test_a_rank_that_is_missing_at_the_start(fake_program: Program, begun: bool) -> None:
    """No mpirun that waits for it for ever; once the job goes on, ranks may leave it."""
    said = "echo run directory: /nowhere\n" if begun else ""
    program = started(fake_program, f"{said}sleep 0.8 &\nsleep {9 if begun else 90} &\nwait")
    process = launch(program, cluster='{"on_loss": "abort"}')
    _, err = process.communicate(timeout=60)
    assert (process.returncode == 137) is not begun
    assert (b"psopt: a rank has died while the job began\n" in err) is not begun


def test_what_the_job_leaves_is_killed(fake_program: Program, tmp_path: Path) -> None:
    """In another session too, and without waiting for it."""
    program = started(fake_program, f"setsid sleep 600 & echo $! >{tmp_path}/left\nexit 0")
    process = launch(program)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert not psutil.pid_exists(int(wait_for(tmp_path / "left")))


def test_a_killed_launcher_takes_mpirun_along(fake_program: Program, tmp_path: Path) -> None:
    body = f"trap 'echo yes >{tmp_path}/told; exit' TERM\necho $$ >{tmp_path}/pid\nwhile :; do sleep 0.05; done"
    process = launch(started(fake_program, body))
    wait_for(tmp_path / "pid")
    process.kill()
    assert wait_for(tmp_path / "told") == "yes\n"
    process.communicate()


def test_a_terminal_is_told_to_the_ranks(fake_program: Program) -> None:
    program = started(fake_program, 'echo "columns=$PSOPT_TERMINAL"')
    ours, theirs = pty.openpty()
    process = launch(program, stdin=theirs, stdout=theirs)
    assert process.wait(30) == 0
    os.close(theirs)
    assert os.read(ours, 100) == b"columns=0\r\n"
    os.close(ours)
    out, _ = launch(program).communicate(timeout=30)
    assert out == b"columns=\n"
    process.communicate()
