"""L-BFGS beside scipy's L-BFGS-B: seconds of an iteration without the objective, and peak memory.

python jobs/solvers.py [SIZE], from the repository's root: each in a process of its own, with m = 10,
float32 and two threads.
"""

from __future__ import annotations

import json
import subprocess
import sys


def main() -> None:
    """Measure both, print both and their ratio."""
    size = sys.argv[1] if len(sys.argv) > 1 else "10000000"
    found = {}
    for name in ("psopt", "scipy"):
        command = [sys.executable, "-m", "tests.optim.beside_scipy", name, size]
        found[name] = json.loads(subprocess.check_output(command))
    ratio = found["psopt"]["seconds"] / found["scipy"]["seconds"]
    print(json.dumps({**found, "ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()
