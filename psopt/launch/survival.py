"""Whether an mpirun's ranks outlive each other; tried once for each mpirun, since the trial takes seconds.

Only what has worked is remembered: a trial may fail for another reason, such as a busy host.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Literal

from psopt.launch.flavour import Flavour, find_mpirun, flavour_of, mpirun_argv, version_of
from psopt.launch.probe import RANKS, survives_loss


def how_to_go_on() -> Literal["continue", "restart"]:
    """The ``cluster.on_loss`` that makes the best of the loss of a rank under this host's mpirun.

    Raises:
        MpirunError: there is none, or it does not answer.
    """
    mpirun = find_mpirun()
    return "continue" if outlives_loss(mpirun, version_of(mpirun)) else "restart"


def outlives_loss(mpirun: Path, version: str) -> bool:
    """Whether a job under ``mpirun``, which prints ``version``, can go on when a rank dies."""
    flavour = flavour_of(version)
    if flavour is not Flavour.OPENMPI:
        return False
    key = _key(mpirun, version)
    if key in (known := _known()):
        return True
    if not survives_loss(mpirun_argv(mpirun, flavour, RANKS, tolerant=True)):
        return False
    _remember([*known, key])
    return True


def cache_path() -> Path:
    """Where the answers are kept."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".cache"
    return base / "psopt" / "survivors.json"


def _key(mpirun: Path, version: str) -> list[str | int]:
    """What the answer depends on: this mpirun, and the mpi4py of this interpreter."""
    return [str(mpirun), version, mpirun.stat().st_mtime_ns, sys.executable]


def _known() -> list[list[str | int]]:
    """The keys that are kept."""
    try:
        known = json.loads(cache_path().read_text(encoding="utf-8"))
    except (OSError, RuntimeError, ValueError):  # there is none, or no home, or it is not ours
        return []
    return known if isinstance(known, list) else []


def _remember(keys: list[list[str | int]]) -> None:
    """Keep the newest; a host that lets nothing be written tries again each time."""
    from psopt.record import write_atomic  # slow to import, and doctors and ranks import this room

    try:
        cache_path().parent.mkdir(parents=True, exist_ok=True)
        write_atomic(cache_path(), json.dumps(keys[-50:], indent=1))
    except (OSError, RuntimeError):
        pass
