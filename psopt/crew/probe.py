"""One rank of a trial: ``mpirun -n 2 python -m psopt.crew.probe MARK SECONDS`` adds a number over MPI.

Each prints MARK and what it saw as JSON. An alarm ends a rank that outlives a killed mpirun, which
Open MPI's can.
"""

from __future__ import annotations

import json
import signal
import sys


def main(mark: str, seconds: int) -> None:
    """Meet the other ranks."""
    signal.alarm(seconds)
    from psopt.crew.mpi import meet

    print(mark + json.dumps(meet()) + "\n", end="", flush=True)  # one write: lines stay whole


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
