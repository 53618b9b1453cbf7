"""DANE's rounds to the optimum of logistic regression: python jobs/logistic.py OUT_DIR --mnist FILE.

MNIST's digits 4 against 7, on virtual workers and on MPI ranks (those by `psopt run`). Writes
OUT_DIR/results.jsonl (an interrupted study goes on from there) and OUT_DIR/logistic.md, and prints
the table. Needs scipy, for the optimum, and an HDF5 file that `psopt data import mnist` made.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from psopt.study.convex.digits import Study, make
from psopt.study.convex.logistic import Setting


def main() -> None:
    """Read the command line, make the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--mnist", type=Path, default=Path("mnist.h5"), help="HDF5 file")
    given = parser.parse_args()
    print(make(Study(Setting()), given.mnist, given.out, lambda s: print(s, flush=True)), end="")


if __name__ == "__main__":
    main()
