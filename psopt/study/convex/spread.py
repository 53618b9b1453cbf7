"""How fast rounds of averaged local Newton steps can be: by the spectrum of (mean_i H_i^-1) H at the optimum.

Near the optimum, with exact local solutions and mu = 0, a round of DANE takes the step -a P g with
P = mean_i H_i^-1 (Shamir, Srebro & Zhang, ICML 2014, eq. 16). With eigenvalues of P H from l to L,
F - F* is sure to fall to ((L - l) / (L + l))^2 of itself by a = 2 / (L + l), and by exact searches along
P g; for the worst start it does no better. Shards that know little of each other make L large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Least and largest eigenvalue of P H."""

    least: float
    most: float

    @property
    def factor(self) -> float:
        """What is left of the gap after a round at the best step, from the worst start."""
        return ((self.most - self.least) / (self.most + self.least)) ** 2


def spread(hessian: Array, shards: Sequence[Array], weights: Sequence[float]) -> Spread:
    """The spectrum of P H.

    Args:
        hessian: H of the objective, (n, n).
        shards: H_i, the penalty's part included, (n, n) each.
        weights: of the shards, their parts of the samples.
    """
    pairs = zip(shards, weights, strict=True)
    p: Any = sum(weight * np.linalg.inv(shard) for shard, weight in pairs)
    root = np.linalg.cholesky(hessian)
    values = np.linalg.eigvalsh(root.T @ p @ root)
    return Spread(float(values[0]), float(values[-1]))
