"""Jobs for tests of the launcher; a shell script stands in for mpirun."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Program = Callable[[str, str], Path]

LAUNCH = """
import json, sys
from pathlib import Path
from psopt.config.cluster import ClusterConfig
from psopt.launch import attempts
attempts.find_mpirun = lambda: Path(sys.argv[1])
again = lambda run, lost: ["again", str(run), *map(str, lost)]
cluster = ClusterConfig(**json.loads(sys.argv[2]))
sys.exit(attempts.run_ranks(sys.argv[3:], 4, cluster, again))
"""


def launch(
    program: Path, *arguments: str, cluster: str = "{}", **options: Any
) -> subprocess.Popen[bytes]:
    """Run 4 ranks with this mpirun; ``cluster`` is the job's section, in JSON."""
    given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = [sys.executable, "-c", LAUNCH, str(program), cluster, *arguments]
    return subprocess.Popen(words, start_new_session=True, **{**given, **options})


def started(fake_program: Program, body: str) -> Path:
    """A stand-in whose `--version` is MPICH's and whose ranks are `body`."""
    return fake_program("mpirun", f'[ "$1" = --version ] && exec echo HYDRA\n{body}')
