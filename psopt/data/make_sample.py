"""Makes the digits that come with the package from the MNIST IDX files.

    python -m psopt.data.make_sample MNIST_DIR OUT

The choice of digits is seeded: the same files give the same arrays.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from psopt.data.importers.mnist import read_mnist
from psopt.data.importers.table import Part, write_dataset

TRAIN, TEST = 4_000, 1_000
_SEED = 1998  # the year of the paper
SOURCE = "MNIST, Y. LeCun, C. Cortes, C. J. C. Burges: a random choice of 4,000 and 1,000 digits"
LICENCE = "CC BY-SA 3.0"


def choose(part: Part, count: int, seed: int) -> Part:
    """A seeded choice of `count` rows, as even over the classes as they allow, in random order.

    All rows in random order when the part has no more than `count`.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    order = generator.permutation(len(part.y))
    labels = part.y[order]
    turn = np.empty(len(order), np.int64)  # the k-th row of its class gets k
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        turn[mine] = np.arange(len(mine))
    rows = order[np.argsort(turn, kind="stable")[:count]]
    rows = generator.permutation(rows)
    return Part(np.asarray(part.x[:])[rows], part.y[rows])


def make_sample(source: Path, out: Path, train: int = TRAIN, test: int = TEST) -> Path:
    """Writes the sample dataset; returns `out`.

    Raises:
        DataError: an IDX file is missing or damaged, or `out` exists.
    """
    data = read_mnist(source)
    chosen = replace(
        data,
        train=choose(data.train, train, _SEED),
        test=choose(data.test, test, _SEED + 1),
        source=SOURCE,
        licence=LICENCE,
    )
    return write_dataset(chosen, out, compress=True)


def main(arguments: list[str]) -> int:
    """The script: two arguments, MNIST_DIR and OUT."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    print(make_sample(Path(arguments[0]), Path(arguments[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
