"""Rounds to the optimum of ridge regression, on the virtual cluster: python jobs/ridge.py OUT_DIR.

Makes the data, and writes OUT_DIR/results.jsonl (an interrupted study goes on from there),
OUT_DIR/ridge.md and OUT_DIR/ridge.csv; prints the table.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from psopt.study.convex.main import make
from psopt.study.convex.plan import Study, columns
from psopt.study.convex.ridge import Setting


def main() -> None:
    """Read the command line, make the study."""
    known = columns(Setting())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--samples", type=int, nargs="+", default=[6000, 10_000, 14_000])
    parser.add_argument("--shards", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--methods", nargs="+", default=known, choices=known, metavar="METHOD")
    given = parser.parse_args()
    study = Study(
        Setting(), tuple(given.methods), tuple(given.samples), tuple(given.shards), given.seeds
    )
    print(make(study, given.out, lambda line: print(line, flush=True)), end="")


if __name__ == "__main__":
    main()
