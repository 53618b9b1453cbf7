"""Seconds of an L-BFGS iteration without the objective, and peak memory, as one line of JSON.

python -m tests.optim.beside_scipy psopt|scipy SIZE; `jobs/solvers.py` starts both.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor

from psopt.optim.lbfgs import LBFGS, LBFGSOptions

MEMORY = 10
ITERATIONS = 2 * MEMORY


class Objective:
    """A quadratic in float32, and the time that is spent outside of it."""

    def __init__(self, size: int) -> None:
        self._weights = torch.linspace(1.0, 1e4, size)
        self._inside = 0.0
        self.ends: list[float] = []

    def __call__(self, point: Tensor) -> tuple[float, Tensor]:
        began = time.perf_counter()
        gradient = point.float() * self._weights
        loss = 0.5 * torch.dot(gradient, point.float()).item()
        self._inside += time.perf_counter() - began
        return loss, gradient

    def note(self) -> None:
        """An iteration has ended."""
        self.ends.append(time.perf_counter() - self._inside)


def run_psopt(objective: Objective, start: Tensor) -> None:
    solver = LBFGS(start, LBFGSOptions(memory=MEMORY))
    while solver.iterations < ITERATIONS:
        solver.tell(*objective(solver.ask()))
        if solver.iterations > len(objective.ends):
            objective.note()


def run_scipy(objective: Objective, start: Tensor) -> None:
    from scipy.optimize import minimize

    def function(x: Any) -> tuple[float, Any]:
        loss, gradient = objective(torch.from_numpy(x))
        return loss, gradient.numpy()

    minimize(
        function,
        start.numpy(),
        jac=True,
        method="L-BFGS-B",
        callback=lambda x: objective.note(),
        options={"maxcor": MEMORY, "maxiter": ITERATIONS, "ftol": 0.0, "gtol": 0.0},
    )


def main() -> None:
    name, size = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(2)
    objective = Objective(size)
    {"psopt": run_psopt, "scipy": run_scipy}[name](objective, torch.ones(size))
    full = objective.ends[MEMORY:]  # from here on the memory is full
    print(
        json.dumps(
            {
                "seconds": round(median(b - a for a, b in pairwise(full)), 3),
                "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
