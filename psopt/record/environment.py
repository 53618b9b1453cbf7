"""What a run met: versions, machine, source revision, the variables that steer it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("psopt", "torch", "numpy", "h5py", "mpi4py", "pydantic", "PyYAML", "safetensors")
_PREFIXES = ("SLURM_", "OMP_", "MKL_", "PSOPT_", "CUDA_VISIBLE_DEVICES", "HDF5_USE_FILE_LOCKING")
_SECRETS = ("JWT", "TOKEN", "SECRET", "PASSWORD", "KEY")
_GIT_SECONDS = 10.0


def environment(mpi: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A JSON-able account of the process and its machine.

    Args:
        mpi: what the crew knows of its MPI library; this room does not import it.
    """
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "argv": list(sys.argv),
        "directory": str(Path.cwd()),
        "git": _git(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "cpus": os.cpu_count(),
        "usable_cpus": _usable_cpus(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "cuda": torch.version.cuda,
        "mpi": dict(mpi) if mpi is not None else None,
        "variables": _variables(),
    }


def batch_job(environ: Mapping[str, str]) -> dict[str, Any]:
    """Which job of Slurm's this process is part of, as a run's attempts have it; empty without one.

    Returns:
        `batch_job`, its number, that of a task of an array as JOB_TASK; and `batch_restarts`, how often it had
        been requeued by then.
    """
    job = environ.get("SLURM_JOB_ID")
    if job is None:
        return {}
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    restarts = environ.get("SLURM_RESTART_COUNT", "")
    return {
        "batch_job": job if array is None or task is None else f"{array}_{task}",
        "batch_restarts": int(restarts) if restarts.isdecimal() else 0,
    }


def _variables() -> dict[str, str]:
    """The variables that steer a run, without those that hold a secret (SLURM_JWT is one)."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_PREFIXES) and not any(word in name for word in _SECRETS)
    }


def _usable_cpus() -> int | None:
    """How many processors this process may use; fewer than the machine has in a batch job."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git() -> dict[str, Any] | None:
    """Commit of the working directory and whether it has changes, or None where there is none."""
    if shutil.which("git") is None:
        return None
    commit = _ask_git("rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _ask_git("status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _ask_git(*arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},  # a record must not lock the work tree
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
