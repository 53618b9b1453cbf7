"""``mpirun -n 3 python -m tests.crew.agree_job``: what the ranks agree on, and how they wait for it."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

from psopt.crew.guard import guarded
from psopt.crew.mpi import World
from psopt.crew.process import die_with_parent

VALUES: list[Any] = [None, "", "job", {"lr": 0.1, "text": "x" * 3_000_000}, ["shorter"]]
PREPARING = 2.0


def busy() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    die_with_parent()
    world = World()

    def body() -> int:
        first = world.rank == 0
        for value in VALUES:
            assert world.agree(value if first else f"of rank {world.rank}") == value
        if first:
            time.sleep(PREPARING)
        start, before = time.perf_counter(), busy()
        assert world.agree("ready" if first else None) == "ready"
        share = (busy() - before) / (time.perf_counter() - start)
        if not first:
            print(f"share {share:.3f}", flush=True)
        return 0

    return guarded(world, body)


if __name__ == "__main__":
    sys.exit(main())
