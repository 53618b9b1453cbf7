"""DANE beside BSP on LeNet-5: python jobs/dane.py --data mnist.h5 --out DIR [--rows 20000].

Writes DIR/results.jsonl (an interrupted study goes on from there), DIR/dane.md and DIR/dane.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from psopt.study.rounds import Setting, measure, plot, table


def main() -> None:
    """Read the command line, make the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="sample", help="HDF5 file, as `psopt data import` makes")
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rows", type=int, help="training samples, the first ones; all if omitted")
    parser.add_argument("--target", type=float, default=0.98, help="test accuracy")
    parser.add_argument("--passes", type=int, default=60, help="most gradient passes of a run")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    setting = Setting(given.data, given.rows, given.target, given.passes)
    results = measure(setting, given.out / "results.jsonl", given.workers)
    (given.out / "dane.md").write_text(table(results), encoding="utf-8")
    plot(results, given.out / "dane")
    print(table(results), end="")


if __name__ == "__main__":
    main()
