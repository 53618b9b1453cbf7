"""The logistic study on a small set: the optimum, runs on both crews, the table, going on."""

from __future__ import annotations

import math
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.optimize import minimize

from psopt.data.dataset import open_dataset
from psopt.study.convex.digits import Penalty, Study, make, page, trials
from psopt.study.convex.limit import Limit, limit
from psopt.study.convex.logistic import (
    Array,
    Logistic,
    Optimum,
    Outcome,
    Setting,
    Trial,
    digits,
    minimum,
    run_trial,
)

SETTING = Setting(gamma=1e-3, rounds=12)
WAYS = ((0.0, False, False), (3.0, True, False))
STUDY = Study(SETTING, (0.1, 0.01), WAYS, ((2, False), (2, True)))


def newton(f: Logistic) -> Array:
    """As the job does."""
    start = np.zeros(f.rows.shape[1])
    call = {"jac": f.gradient, "hess": f.hessian, "method": "trust-exact"}
    found: Array = minimize(f.value, start, **call, options={"gtol": 1e-12}).x
    return found


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """Ten labels, of which 4 and 7 differ in brightness here and there."""
    generator = np.random.default_rng(5)
    path = tmp_path / "mnist.h5"
    with h5py.File(path, "w") as file:
        for split, rows in (("train", 900), ("test", 100)):
            y = generator.integers(0, 10, rows)
            x = generator.integers(0, 200, (rows, 1, 3, 3))
            x[y == 4, :, 0] += 30
            file[f"{split}/x"], file[f"{split}/y"] = x.astype(np.uint8), y
        file.attrs["classes"] = [str(digit) for digit in range(10)]
        file.attrs["mean"], file.attrs["std"] = 0.4, 0.2
    return path


def test_only_the_digits_in_0_to_1(mnist: Path, tmp_path: Path) -> None:
    path = digits(mnist, SETTING, tmp_path / "digits.h5")
    train = open_dataset(path, cache_bytes=1 << 30, classes=(4, 7)).train
    x, y = train.range(0, len(train))
    with h5py.File(mnist) as file:
        labels, pixels = file["train/y"][()], file["train/x"][()]
    chosen = np.isin(labels, [4, 7])
    np.testing.assert_array_equal(y, (labels[chosen] == 7).astype(np.int64))
    np.testing.assert_allclose(x, pixels[chosen] / 255, rtol=1e-6)


def test_derivatives() -> None:
    generator = np.random.default_rng(1)
    problem = Logistic(generator.normal(size=(30, 4)), 0.3)
    w, step = generator.normal(size=4), 1e-6 * np.eye(4)
    slopes = [(problem.value(w + e) - problem.value(w - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(problem.gradient(w), slopes, rtol=1e-6)
    turns = [(problem.gradient(w + e) - problem.gradient(w - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(problem.hessian(w), turns, rtol=1e-6)


def test_dane_comes_to_the_optimum_of_scipy(mnist: Path, tmp_path: Path) -> None:
    data = digits(mnist, SETTING, tmp_path / "digits.h5")
    optimum = minimum(SETTING, 0.1, data, newton)
    assert optimum.gradient_norm**2 / (2 * 0.1) < 1e-14
    found = run_trial(SETTING, Trial(0.1, 2, False, 0.0), data, optimum)
    assert found.end == "objective"
    assert found.rounds <= 5
    assert -1e-12 <= found.gap <= 1e-6
    with pytest.raises(ValueError, match="the gradient at the optimum that was found is"):
        minimum(SETTING, 0.1, data, lambda f: np.zeros(f.rows.shape[1]))
    early = Optimum(optimum.value * 0.9, 0.0)
    assert run_trial(SETTING, Trial(0.1, 2, False, 0.0), data, early).end == "steps"


@pytest.mark.mpi
def test_the_same_on_ranks(mnist: Path, tmp_path: Path) -> None:
    data = digits(mnist, SETTING, tmp_path / "digits.h5")
    optimum = minimum(SETTING, 0.1, data, newton)
    real, virtual = (
        run_trial(SETTING, Trial(0.1, 2, mpi, 0.0), data, optimum) for mpi in (True, False)
    )
    assert real == virtual


def formula(trial: Trial) -> Outcome:
    if trial.mu == 0.0 and trial.l2 < 0.1:
        return Outcome(2, "diverged", 1e4, 30.0)
    if trial.l2 < 0.1:
        return Outcome(12, "steps", 3e-5, 300.0)
    return Outcome(4 + trial.workers, "objective", 4e-7, 123.4)


def test_page() -> None:
    optima = {
        Penalty(0.1): Optimum(0.25, 1e-13, {"2": [5, 3]}),
        Penalty(0.01): Optimum(0.125, 2e-13),
    }
    results = {trial: formula(trial) for trial in trials(STUDY) if not (trial.mpi and trial.mu)}
    golden = Path(__file__).with_name("golden_logistic.md")
    assert page(STUDY, optima, results) == golden.read_text(encoding="utf-8")


def test_an_interrupted_study_goes_on(mnist: Path, tmp_path: Path) -> None:
    said: list[str] = []
    study = Study(SETTING, (0.1,), WAYS[:1], ((2, False),))
    text = make(study, mnist, tmp_path / "out", newton, said.append)
    assert len(said) == 2
    more = Study(SETTING, (0.1,), WAYS, ((2, False),))
    make(more, mnist, tmp_path / "out", newton, said.append)
    assert len(said) == 3
    assert "mu=3.0" in said[-1]
    assert make(study, mnist, tmp_path / "out", newton, said.append) == text
    assert len(said) == 3
    assert (tmp_path / "out" / "logistic.md").read_text(encoding="utf-8") == text


def test_the_fewest_rounds() -> None:
    """Of diagonal Hessians: conjugate directions need one round for each eigenvalue of P H."""
    shards = [np.diag([1.0, 4.0, 2.0]), np.diag([3.0, 4.0, 8.0])]
    mean, start = (shards[0] + shards[1]) / 2, np.array([1.0, -2.0, 3.0])
    found = limit(mean, shards, [0.5, 0.5], start, 1e-20)
    assert found.together == 3  # P H is diag(4/3, 1, 25/16)
    worst = (9 / 41) ** 2  # what a step leaves of the gap, at most
    first = start @ mean @ start / 2
    assert 3 < found.alone <= math.ceil(math.log(1e-20 / first) / math.log(worst))
    assert limit(mean, shards, [0.5, 0.5], start, 1e-20, (0.0, 1e3)) == found
    assert limit(mean, shards, [0.5, 0.5], start, first) == Limit(0, 0)
    assert limit(mean, [mean] * 3, [0.2, 0.3, 0.5], start, 1e-20) == Limit(1, 1)


def test_an_optimum_knows_the_limit(mnist: Path, tmp_path: Path) -> None:
    data = digits(mnist, SETTING, tmp_path / "digits.h5")
    optimum = minimum(SETTING, 0.01, data, newton, (3,))
    found = optimum.limit(3)
    assert found is not None
    assert 2 <= found.together <= found.alone <= 10
    assert optimum.limit(4) is None


def test_conjugate_directions_save_rounds(mnist: Path, tmp_path: Path) -> None:
    data = digits(mnist, SETTING, tmp_path / "digits.h5")
    optimum = minimum(SETTING, 1e-4, data, newton)
    plain, conjugate = (
        run_trial(SETTING, Trial(1e-4, 16, False, 0.0, True, bend), data, optimum)
        for bend in (False, True)
    )
    assert (plain.end, conjugate.end) == ("objective", "objective")
    assert conjugate.rounds <= plain.rounds - 2
