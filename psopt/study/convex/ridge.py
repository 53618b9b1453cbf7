"""Ridge regression after Shamir, Srebro & Zhang: data, optimum, the methods, one run.

"Communication-efficient distributed optimization using an approximate Newton-type method", ICML 2014,
section 6. Samples x ~ N(0, diag(i^-decay)), targets y = sum_i x_i + N(0, 1), and

    F(w) = mean (<x, w> - y)^2 + l2/2 |w|^2,        lambda = l2
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
import numpy.typing as npt

from psopt import job
from psopt.config import JobConfig
from psopt.record.files import replacing
from psopt.roles.display import Several
from psopt.schemes.base import Scheme
from psopt.study.virtual import run

_TEST_ROWS = 100  # a data set has a test split; nothing here looks at it


@dataclass(frozen=True)
class Setting:
    """What all runs of a study have in common.

    Attributes:
        features: length of w.
        decay: of the features' variances.
        l2: lambda.
        tolerance: F - F* that counts as the end.
        gamma: local solves of DANE, its safeguarded form and GIANT stop at this part of |grad h(w_t)|.
        rounds: most of them.
        admm_rounds: most of ADMM's.
    """

    features: int = 500
    decay: float = 1.2
    l2: float = 0.01
    tolerance: float = 1e-6
    gamma: float = 1e-4
    rounds: int = 60
    admm_rounds: int = 100


@dataclass(frozen=True, order=True)
class Trial:
    """One run.

    Attributes:
        method: a name of ``methods``.
        samples: of the training set.
        shards: as many workers.
        seed: of the data and of the cut into shards.
    """

    method: str
    samples: int
    shards: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        rounds: that it took.
        end: ``reached``, ``limit`` (of rounds), ``diverged``, or the scheme's own reason.
        gap: F - F* at the end; of a run that diverged, before its last round.
        passes: gradient passes over the training set, those of the local solves too.
        wall: seconds that this took.
    """

    rounds: int
    end: str
    gap: float
    passes: float
    wall: float


@dataclass(frozen=True)
class Method:
    """A scheme with its options, and the most rounds that it may take."""

    scheme: Mapping[str, Any]
    rounds: int


def methods(setting: Setting) -> dict[str, Method]:
    """By name, in the order of the table; ADMM once for each rho."""
    exact = {"solver": "cg", "gamma": setting.gamma, "passes": 2000}
    # One-shot and ADMM start their solves where the gradient does not vanish as F nears F*.
    finest = exact | {"gamma": 1e-6}
    rough = {"solver": "cg", "gamma": 0.3, "passes": 20}
    damped = 3 * setting.l2
    long = setting.rounds
    return {
        "dane, mu = 0": Method({"name": "dane", "local": exact}, long),
        "dane, mu = 3 lambda": Method({"name": "dane", "mu": damped, "local": exact}, long),
        "dane, safeguard": Method({"name": "dane", "safeguard": True, "local": exact}, long),
        "giant": Method({"name": "giant", "local": exact}, long),
        "inexact dane, mu = 3 lambda": Method(
            {"name": "inexact_dane", "mu": damped, "local": rough}, long
        ),
        "aide, tau = 3 lambda": Method({"name": "aide", "tau": damped, "local": rough}, long),
        "one-shot": Method({"name": "one_shot", "local": finest}, 1),
        "one-shot, part 0.5": Method({"name": "one_shot", "part": 0.5, "local": finest}, 1),
        **{
            f"admm, rho = {rho:g}": Method(
                {"name": "admm", "rho": rho, "local": finest}, setting.admm_rounds
            )
            for rho in (0.03, 0.05, 0.1)
        },
    }


def run_trial(setting: Setting, trial: Trial, folder: Path) -> Outcome:
    """Run until F - F* is small enough.

    Args:
        setting: of the study.
        trial: the run.
        folder: where data sets are kept; made when missing.
    """
    began = time.perf_counter()
    path, optimum = dataset(setting, trial.samples, trial.seed, folder)
    method = methods(setting)[trial.method]
    ended = run(job_of(setting, trial, method, path, optimum), Several([]))
    row = [row for row in ended.rows if row["kind"] in ("start", "step")][-1]
    steps = ended.coordinator.progress.step
    known = {"objective": "reached", "steps": "limit"}
    return Outcome(
        rounds=steps,
        end="diverged" if ended.status == "diverged" else known.get(ended.reason, ended.reason),
        gap=row["objective"] - optimum,
        passes=row["epoch"],
        wall=time.perf_counter() - began,
    )


def job_of(
    setting: Setting, trial: Trial, method: Method, path: Path, optimum: float
) -> JobConfig[Scheme]:
    """The job of a run."""
    written = {
        "name": "ridge",
        "seed": trial.seed,
        "model": {"name": "linear", "dtype": "float64", "kwargs": {"bias": False}},
        "data": {"path": str(path)},
        "loss": {"name": "mse", "l2": setting.l2},
        "scheme": dict(method.scheme),
        "train": {"epochs": 10**9, "batch_size": trial.samples},
        "stop": {"objective": optimum + setting.tolerance, "steps": method.rounds},
        "evaluate": {"every_epochs": 1e12},
        "log": {"timeline_events": 0},
        "cluster": {"workers": trial.shards},
        "device": {"threads": 1},
    }
    config: JobConfig[Scheme] = job.Job.model_validate_json(json.dumps(written))
    return config


def dataset(setting: Setting, samples: int, seed: int, folder: Path) -> tuple[Path, float]:
    """The data set of a seed, and F*; made when it is not there."""
    path = folder / f"ridge-{setting.features}-{samples}-{seed}.h5"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as aside:
            _make(setting, samples, seed, aside)
    with h5py.File(path) as file:
        return path, float(file.attrs[f"optimum, l2 = {setting.l2!r}"])


def _make(setting: Setting, samples: int, seed: int, to: BinaryIO) -> None:
    generator = np.random.default_rng(seed)
    rows = samples + _TEST_ROWS
    deviations = np.arange(1, setting.features + 1) ** (-setting.decay / 2)
    x = (generator.standard_normal((rows, setting.features)) * deviations).astype(np.float32)
    y = (x.sum(1) + generator.standard_normal(rows)).astype(np.float32)
    with h5py.File(to, "w") as file:
        for split, part in (("train", slice(0, samples)), ("test", slice(samples, None))):
            file[f"{split}/x"], file[f"{split}/y"] = x[part], y[part, None]
        optimum = minimum(x[:samples], y[:samples], setting.l2)
        file.attrs[f"optimum, l2 = {setting.l2!r}"] = optimum


def minimum(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32], l2: float) -> float:
    """F*, by the normal equations in float64."""
    wide, target = x.astype(np.float64), y.astype(np.float64)
    matrix = 2 / len(y) * wide.T @ wide + l2 * np.eye(x.shape[1])
    w = np.linalg.solve(matrix, 2 / len(y) * wide.T @ target)
    return float(np.mean((wide @ w - target) ** 2) + l2 / 2 * w @ w)
