"""DANE's rounds to the optimum of logistic regression: python jobs/logistic.py OUT_DIR --mnist FILE.

MNIST's digits 4 against 7, on virtual workers and, by `psopt run`, on MPI ranks. An interrupted study
goes on from OUT_DIR/results.jsonl; the table is printed, and is OUT_DIR/logistic.md. Needs scipy.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from psopt.study.convex.digits import Study, make
from psopt.study.convex.logistic import Array, Logistic, Setting


def newton(f: Logistic) -> Array:
    """The optimum, by Newton's method in a trust region."""
    start, tight = np.zeros(f.rows.shape[1]), {"gtol": 1e-12}
    call = {"jac": f.gradient, "hess": f.hessian, "method": "trust-exact", "options": tight}
    found: Array = minimize(f.value, start, **call).x
    return found


def main() -> None:
    """Read the command line, make the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--mnist", type=Path, default=Path("mnist.h5"), help="HDF5 file")
    given = parser.parse_args()
    print(make(Study(Setting()), given.mnist, given.out, newton), end="")


if __name__ == "__main__":
    main()
