"""How a rank ends is known to its supervisor, and said when the rank has not said it itself."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from psopt.crew.supervisor import meeting_seconds

HOST = socket.gethostname()
START = """
import os, signal, subprocess, sys, time
from psopt.crew.supervisor import supervise
notes = supervise()
notes.rank(2)
"""


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """A test that fails leaves no process for the next one to stumble over."""
    yield
    while STARTED:
        with STARTED.pop() as process:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def start(body: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", START + body],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    STARTED.append(process)
    return process


def end(body: str) -> tuple[int, str, str]:
    process = start(body)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def test_it_is_started_before_anything_large() -> None:
    code = "import sys; import psopt.crew.supervisor; print('torch' in sys.modules, 'numpy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False False\n"


@pytest.mark.parametrize("status", [0, 2, 3])
def test_a_rank_that_has_finished(status: int) -> None:
    assert end(f"print('hi'); notes.finished(); sys.exit({status})") == (status, "hi\n", "")


def test_what_was_printed_before_is_printed_once() -> None:
    code = START.replace("notes =", "print('before', end=''); notes =") + "notes.finished()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "before"


@pytest.mark.parametrize(("leave", "status"), [("os._exit(0)", 0), ("sys.exit(5)", 5)])
def test_a_rank_that_leaves(leave: str, status: int) -> None:
    code, _, err = end(leave)
    assert code == max(status, 1)
    assert re.fullmatch(
        rf"psopt: rank 2 \(worker 1\) on {HOST}, process \d+, left with status {status} before the "
        r"job was complete; the job ends\n",
        err,
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_rank_that_is_killed(number: signal.Signals) -> None:
    code, _, err = end(f"os.kill(os.getpid(), {int(number)}); time.sleep(60)")
    assert code == 128 + number
    who = rf"psopt: rank 2 \(worker 1\) on {HOST}, process \d+, was killed by signal"
    assert re.match(rf"{who} {int(number)}, {number.name}", err)
    assert ("want of memory" in err) == (number == signal.SIGKILL)


def test_a_rank_that_is_killed_after_it_has_finished() -> None:
    code, _, err = end("notes.finished(); os.kill(os.getpid(), signal.SIGKILL)")
    assert code == 137
    assert "SIGKILL" in err


def test_a_rank_that_nobody_knows() -> None:
    code = START.replace("notes.rank(2)", "os._exit(0)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"psopt: a rank on {HOST}, process ")


NOT_MET = START.replace("notes.rank(2)", "notes.meeting()")


def test_ranks_that_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in MPI_Init where one is missing."""
    monkeypatch.setenv("PSOPT_MEETING_SECONDS", "0.5")
    words = [sys.executable, "-c", NOT_MET + "time.sleep(600)"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        rf"psopt: a rank on {HOST}, process \d+: MPI has not brought the ranks together "
        r"within 0.5 s: one of them is missing, or the launcher and this MPI do not understand each "
        r"other \(psopt doctor; srun --mpi=list\)\n",
        done.stderr,
    )


def test_one_that_has_said_why_before_they_met() -> None:
    """And then does not end: it is no rank that waits for others."""
    words = [sys.executable, "-c", NOT_MET + "notes.failed(2); time.sleep(600)"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, "")


def test_ranks_that_have_met_have_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PSOPT_MEETING_SECONDS", "0.3")
    words = [sys.executable, "-c", NOT_MET + "notes.rank(2); time.sleep(1); notes.finished()"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (None, 300),
        ("20", 20),
        ("", 300),
        ("soon", 300),
        ("-1", 300),
        ("nan", 300),
        ("inf", 300),
        ("1e10", 300),
    ],
)
def test_how_long_ranks_wait_for_each_other(given: str | None, seconds: float) -> None:
    environ = {} if given is None else {"PSOPT_MEETING_SECONDS": given}
    assert meeting_seconds(environ) == seconds


def test_a_rank_that_has_said_why() -> None:
    assert end("notes.failed(); sys.exit(1)") == (1, "", "")


def test_a_rank_that_has_failed_and_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(
        "import psopt.crew.supervisor\nnotes.failed(3); print('x', flush=True); time.sleep(60)"
    )
    began = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (3, "")  # which it meant to end with
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("status", [0, 3])
def test_a_rank_that_has_finished_and_does_not_end(status: int) -> None:
    """As in MPI's Finalize: its work is complete, and that is what counts."""
    code = START.replace("supervise()", "supervise(patience=0.5)")
    hang = f"print('done', flush=True); notes.finished({status}); time.sleep(600)"
    process = subprocess.run(
        [sys.executable, "-c", code + hang], capture_output=True, text=True, check=False, timeout=60
    )
    assert (process.returncode, process.stdout, process.stderr) == (status, "done\n", "")


def test_its_children_end_with_it() -> None:
    """In whatever session; the pipes that they hold do not keep anybody waiting."""
    child = "subprocess.Popen(['sleep', '600'], start_new_session={}).pid"
    body = f"print({child.format(True)}, {child.format(False)}, flush=True)\nos._exit(0)"
    code, out, _ = end(body)
    assert code == 1
    family = [psutil.Process(int(pid)) for pid in out.split() if psutil.pid_exists(int(pid))]
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_a_grandchild_that_ends_is_no_end_of_the_rank() -> None:
    body = "os.system('(sleep 0.1 &)'); time.sleep(0.5); print('on'); notes.finished()"
    assert end(body) == (0, "on\n", "")


def test_signals_reach_the_rank() -> None:
    body = """
signal.signal(signal.SIGTERM, lambda *_: (print('had it'), notes.finished(), sys.exit(0)))
print('ready', flush=True)
while True:  # a signal that comes just before a sleep begins is handled at its end
    time.sleep(0.05)
"""
    process = start(body)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "had it\n", "")


def test_a_rank_that_was_told_to_end_is_no_news() -> None:
    process = start("print('ready', flush=True); time.sleep(60)")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (143, "", "")


def test_both_end_with_who_started_them(tmp_path: Path) -> None:
    """As mpirun, killed: the rank and its children, too."""
    path = tmp_path / "pids"
    body = "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n" + (
        f"open({str(path)!r}, 'w').write(f'{{os.getppid()}} {{os.getpid()}} {{child.pid}}\\n')\n"
        "time.sleep(600)"
    )
    words = [sys.executable, "-c", START + body]
    starter = f"import subprocess; subprocess.Popen({words!r}).wait()"
    process = subprocess.Popen([sys.executable, "-c", starter], start_new_session=True)
    deadline = time.monotonic() + 30
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    family = []
    for pid in path.read_text().split():
        with contextlib.suppress(psutil.NoSuchProcess):
            family.append(psutil.Process(int(pid)))
    assert psutil.wait_procs(family, timeout=10)[1] == []


@pytest.mark.parametrize("said", ["", "notes.failed();"])
@pytest.mark.parametrize("heeds", [True, False])
def test_a_launcher_that_misses_a_death_is_ended(heeds: bool, said: str) -> None:
    """Soon; one that is through by itself is left alone. A child that fails says why and kills its rank."""
    rank = f"{START}{said}os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)"
    launcher = (
        "import os, subprocess, sys, time\n"
        "environment = {**os.environ, 'PMI_RANK': '1'}\n"
        f"code = subprocess.call([sys.executable, '-c', {rank!r}], env=environment)\n"
        f"time.sleep(0.2 if {heeds} else 60)\n"
        "sys.exit(7)\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", launcher], capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == (7 if heeds else -signal.SIGTERM)
    assert time.monotonic() - began < 30
    assert ("rank 2 (worker 1)" in done.stderr) == (not said)


def test_a_launcher_is_left_alone_by_who_has_said_why_and_ended() -> None:
    """The others end as well, each in its time, or are ended by MPI's abort."""
    rank = f"{START}notes.failed(2); sys.exit(2)"
    launcher = (
        "import os, subprocess, sys, time\n"
        "environment = {**os.environ, 'PMI_RANK': '1'}\n"
        f"code = subprocess.call([sys.executable, '-c', {rank!r}], env=environment)\n"
        "time.sleep(4)\n"
        "sys.exit(code)\n"
    )
    words = [sys.executable, "-c", launcher]
    assert subprocess.run(words, check=False, timeout=50).returncode == 2


@pytest.mark.parametrize("said", ["", "notes.failed();"])
def test_the_connection_to_the_launcher_ends_first(said: str) -> None:
    """MPICH's goes on where it has reaped a process before it finds the connection closed."""
    rank = f"{START}{said}os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)"
    launcher = (
        "import os, socket, subprocess, sys, time\n"
        "ours, theirs = socket.socketpair()\n"
        "environment = {**os.environ, 'PMI_RANK': '1'}\n"
        f"process = subprocess.Popen([sys.executable, '-c', {rank!r}], env=environment, "
        "pass_fds=[theirs.fileno()])\n"
        "theirs.close()\n"
        "assert ours.recv(1) == b''\n"
        "time.sleep(0.1)\n"
        "print(process.poll())\n"
        "sys.exit(process.wait())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", launcher], capture_output=True, text=True, check=False, timeout=50
    )
    assert (done.returncode, done.stdout) == (137, "None\n")
