"""AIDE, GIANT, ADMM and one-shot averaging beside their formulas on a quadratic, round by round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from psopt import job
from psopt.data.shards import Shard, part_of
from tests.schemes.ridge import L2, ridge
from tests.training import Trained, train

Vector = npt.NDArray[np.float64]
EXACT = {"solver": "cg", "gamma": 1e-14, "passes": 400}
SAMPLES, WIDTH, SHARDS = 130, 8, 4  # shards of 32, 33, 32 and 33 samples


class Quadratic:
    """Hessian and linear term of each shard's mean loss, and the runs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given = folder, ridge(folder, SAMPLES, WIDTH)
        parts = job.assemble(self.given.job({}))
        self.rows = [
            Shard(k, SHARDS, "iid", parts.config.seed).rows(parts.data.train) for k in range(SHARDS)
        ]
        self.shares = [len(rows) / SAMPLES for rows in self.rows]
        self.start = parts.model.parameters.clone().numpy()

    def shard(self, k: int, part: float = 1.0) -> tuple[Vector, Vector]:
        """H and b with grad f = H w - b."""
        rows = self.rows[k][: round(part * len(self.rows[k]))]
        x, y = self.given.x[rows], self.given.y[rows]
        return 2 * x.T @ x / len(y), 2 * x.T @ y / len(y)

    def solve(self, k: int, curb: float, right: Vector, part: float = 1.0) -> Vector:
        """(H_k + curb I)^-1 right."""
        return np.asarray(np.linalg.solve(self.shard(k, part)[0] + curb * np.eye(WIDTH), right))

    def mean(self, of: Callable[[int], Vector]) -> Vector:
        return np.asarray(sum(share * of(k) for k, share in enumerate(self.shares)))

    def run(self, scheme: dict[str, Any], rounds: int) -> Trained:
        scheme = {"shards": SHARDS, "local": EXACT, **scheme}
        config = self.given.job(scheme, stop={"steps": rounds})
        return train(config, self.folder / f"run{rounds}", workers=3)

    def check(self, scheme: dict[str, Any], expected: list[Vector]) -> Trained:
        """Parameters and objective after each round; the last run."""
        for rounds, w in enumerate(expected, 1):
            done = self.run(scheme, rounds)
            found = done.coordinator.server.model.parameters.numpy()
            np.testing.assert_allclose(found, w, rtol=1e-9, atol=1e-11)
            row = done.rows("step")[-1]
            assert row["objective"] == pytest.approx(self.given.objective(w), rel=1e-10)
        return done


@pytest.fixture
def quadratic(tmp_path: Path) -> Quadratic:
    return Quadratic(tmp_path)


@pytest.mark.parametrize("rounds", [1, 2])
def test_aide(rounds: int, quadratic: Quadratic) -> None:
    """Algorithm 2 of Reddi et al., with one or two rounds of DANE between changes of y."""
    mu, tau = 0.2, 0.3
    w = y = last = quadratic.start
    z, q, expected = 0.5, L2 / (L2 + tau), []
    for k in range(4):
        pulled = quadratic.given.gradient(w) + tau * (w - y)
        w = w - quadratic.mean(lambda i, g=pulled: quadratic.solve(i, L2 + mu + tau, g))  # type: ignore[misc]
        expected.append(w)
        if (k + 1) % rounds == 0:
            new = max(np.roots([1.0, z * z - q, -z * z]).real)  # z'^2 = (1 - z') z^2 + q z'
            y = w + z * (1 - z) / (z * z + new) * (w - last)
            z, last = new, w
    quadratic.check({"name": "aide", "mu": mu, "tau": tau, "rounds": rounds}, expected)


def test_admm(quadratic: Quadratic) -> None:
    """Section 7.1.1 of Boyd et al., with the penalty in the consensus and samples as weights."""
    rho, z, expected = 0.4, quadratic.start, []
    duals = [np.zeros(WIDTH)] * SHARDS
    for _ in range(4):
        points = [
            quadratic.solve(k, rho, quadratic.shard(k)[1] + rho * (z - u))
            for k, u in enumerate(duals)
        ]
        z = rho / (rho + L2) * quadratic.mean(lambda k, x=points, u=duals: x[k] + u[k])  # type: ignore[misc]
        duals = [u + x - z for x, u in zip(points, duals, strict=True)]
        expected.append(z)
    quadratic.check({"name": "admm", "rho": rho}, expected)


@pytest.mark.parametrize("part", [None, 0.5, 0.999])
def test_one_shot(part: float | None, quadratic: Quadratic) -> None:
    """The mean solution; r of the bias correction is the part of a shard that was really solved."""

    def solution(k: int) -> Vector:
        whole = quadratic.solve(k, L2, quadratic.shard(k)[1])
        if part is None:
            return whole
        count = len(quadratic.rows[k])
        r = min(round(part * count), count - 1) / count
        some = quadratic.solve(k, L2, quadratic.shard(k, r)[1], r)
        return (whole - r * some) / (1 - r)

    w = quadratic.mean(solution)
    quadratic.check({"name": "one_shot", "part": part}, [w])


def test_giant(quadratic: Quadratic) -> None:
    """The mean of local Newton directions, and of the steps 4, 2, 1, ... the one of the lowest objective."""
    w, expected, steps = quadratic.start, [], []
    grid = [4.0 * 0.5**k for k in range(12)]
    for _ in range(4):
        gradient = quadratic.given.gradient(w)
        way = -quadratic.mean(lambda k, g=gradient: quadratic.solve(k, L2, g))  # type: ignore[misc]
        steps.append(min(grid, key=lambda a: quadratic.given.objective(w + a * way)))
        w = w + steps[-1] * way
        expected.append(w)
    done = quadratic.check({"name": "giant"}, expected)
    assert [row["step_size"] for row in done.rows("step")] == steps


def test_giant_does_not_take_a_long_step_that_leads_nowhere(tmp_path: Path) -> None:
    """Shards smaller than the number of features: the full step overshoots, and half of it does not."""
    given = ridge(tmp_path, 160, 30)
    done = train(
        given.job({"name": "giant", "shards": 8}, stop={"steps": 12}), tmp_path / "run", workers=2
    )
    steps = [row["step_size"] for row in done.rows("step")]
    assert min(steps[:4]) < 1.0
    gaps = [row["objective"] - given.least for row in done.rows("step")]
    assert gaps[-1] < 1e-3 * gaps[0]


def test_a_part_is_no_whole() -> None:
    assert [part_of(count, 0.5) for count in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert [part_of(count, 0.999) for count in (1, 2, 100)] == [1, 1, 99]
    assert part_of(7, 1.0) == 7
