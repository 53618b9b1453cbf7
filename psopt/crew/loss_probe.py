"""Two ranks, of which one dies: the other says whether it sees that, and lives on. ``psopt.launch`` starts them."""

from __future__ import annotations

import os
import signal
import sys
import time

from psopt.crew.mpi import World
from psopt.crew.wire import Tag


def main(mark: str, seconds: float) -> None:
    """Rank 1 kills itself; rank 0 prints ``mark`` when it has noticed, within ``seconds``."""
    world = World()
    if world.agree(os.getpid()) != os.getpid():  # rank 0's
        os.kill(os.getpid(), signal.SIGKILL)
    world.ranks.survive()
    end = time.monotonic() + seconds
    while time.monotonic() < end and 1 not in world.ranks.gone:
        world.ranks.probe(None, Tag.HELLO)
        time.sleep(0.01)
    if 1 in world.ranks.gone:
        print(mark, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
