"""The speed-up study on the virtual cluster: python jobs/speedup.py --data mnist.h5 --out DIR [--jobs 2].

Writes DIR/results.jsonl (an interrupted study goes on from there), DIR/speedup.md and
DIR/speedup.png, and prints the page. --quick is a small study of the packaged sample.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from psopt.study.main import QUICK, insert, make
from psopt.study.speedup import Study
from psopt.study.trial import Setting


def main() -> None:
    """Read the command line, make the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="sample", help="HDF5 file, as `psopt data import` makes")
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--quick", action="store_true", help="a minute's study of the sample")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the page into docs too")
    given = parser.parse_args()
    study = QUICK if given.quick else Study(Setting(given.data))
    page = make(study, given.out, given.jobs)
    print(page, end="")
    if given.write is not None:
        insert(given.write, page, given.out / "speedup.png")


if __name__ == "__main__":
    main()
