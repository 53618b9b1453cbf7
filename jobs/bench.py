"""The benchmarks of psopt on this machine: ``make bench``, or ``python jobs/bench.py --runs 5``."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from psopt.bench.suite import run


def main() -> None:
    """Measure, print a table, and say by the exit status whether every aim is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="alternating runs of each pair")
    parser.add_argument("--epochs", type=int, default=16, help="epochs of each training run")
    options = parser.parse_args()
    lines = run(Path(__file__).parent, options.runs, options.epochs)
    table = Table("benchmark", "measured", "aim", "")
    for line in lines:
        verdict = ("met" if line.met else "MISSED") if line.bound else ""
        table.add_row(line.what, line.value, line.bound, verdict)
    Console(width=110).print(table)
    raise SystemExit(0 if all(line.met for line in lines) else 1)


if __name__ == "__main__":
    main()
