"""A batch job that starts anew while processes of its own, from before, may still be at work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from psopt.record.directory import RunDirectory, RunExists
from psopt.record.environment import batch_job
from psopt.record.hold import Hold

_PATIENCE = 600.0  # seconds
_LOOK = 1.0  # seconds between looks


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def hold_again(
    run: RunDirectory, environ: Mapping[str, str], say: Callable[[str], None] = _print
) -> Hold:
    """Hold the directory of a run that goes on; in a job that was requeued, wait until it can be held.

    Slurm requeues a job when it hears no more of a node. Ranks on that node may go on for a while, and save
    checkpoints, until its daemon answers again and ends them.

    Raises:
        RunExists: another process runs in it.
    """
    end = time.monotonic() + (_PATIENCE if batch_job(environ).get("batch_restarts") else 0.0)
    said = False
    while True:
        try:
            return run.hold()
        except RunExists:
            if time.monotonic() >= end:
                raise
        if not said:
            say(f"psopt: {run.path}: waiting for processes of this job from before it was requeued")
        said = True
        time.sleep(_LOOK)
