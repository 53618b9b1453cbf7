"""``mpirun -n 3 python -m tests.crew.hang_job``: all have finished, and rank 1 never comes to its Finalize."""

from __future__ import annotations

import time

from psopt.crew.supervisor import supervise


def main() -> None:
    notes = supervise(patience=1.0)
    from psopt.crew.mpi import World

    world = World()
    notes.rank(world.rank)
    world.agree(None)
    print("done", flush=True)
    notes.finished()
    if world.rank == 1:
        time.sleep(600)


if __name__ == "__main__":
    main()
