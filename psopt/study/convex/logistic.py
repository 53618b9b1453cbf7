"""Logistic regression on two of MNIST's digits: DANE's rounds to an optimum that a solver found.

Pixels are in [0, 1]. With s = 1 for the second digit and -1 for the first::

    F(w) = mean log(1 + exp(-s <x, w>)) + l2/2 |w|^2
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from psopt import job
from psopt.config import JobConfig, dump_job
from psopt.data.shards import Shard
from psopt.record import EXITS, read_metrics, write_atomic
from psopt.record.files import replacing
from psopt.roles.display import Several
from psopt.schemes.base import Scheme
from psopt.study.convex.limit import Limit, limit
from psopt.study.virtual import run

Array = npt.NDArray[np.float64]

_EXACT = 1e-10  # relative error of F* that is let pass
_MUS = 0.0, 0.3, 1.0, 3.0  # in units of l2, of which the limit takes the best


@dataclass(frozen=True)
class Setting:
    """What all runs have in common.

    Attributes:
        classes: the two labels.
        tolerance: (F - F*) / F* that counts as the end.
        gamma: local solves stop at this part of |grad h(w_t)|.
        rounds: most of them.
    """

    classes: str = "4, 7"
    tolerance: float = 1e-6
    gamma: float = 1e-2
    rounds: int = 20

    @property
    def labels(self) -> list[int]:
        """The two labels as numbers."""
        return [int(label) for label in self.classes.split(",")]


@dataclass(frozen=True, order=True)
class Trial:
    """One run.

    Attributes:
        l2: weight of the penalty.
        workers: how many, a shard each.
        mpi: on real ranks instead of virtual ones.
        mu: DANE's, in units of l2.
        safeguard: DANE's.
        conjugate: DANE's.
    """

    l2: float
    workers: int
    mpi: bool
    mu: float
    safeguard: bool = False
    conjugate: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        rounds: that it took.
        end: reason of a completed run, ``objective`` where the tolerance was reached; or ``diverged``.
        gap: (F - F*) / F* at the end.
        passes: gradient passes over the training set, those of the local solves too.
    """

    rounds: int
    end: str
    gap: float
    passes: float


@dataclass(frozen=True)
class Optimum:
    """F*, and what is known of the place.

    Attributes:
        value: F*.
        gradient_norm: Euclidean, there.
        limits: by the number of shards, as text: what ``Limit`` says of them.
    """

    value: float
    gradient_norm: float
    limits: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def limit(self, shards: int) -> Limit | None:
        """The fewest rounds near the optimum; None where it was not asked for."""
        found = self.limits.get(str(shards))
        return Limit(*found) if found else None


@dataclass(frozen=True)
class Logistic:
    """F and its derivatives; ``rows`` are s x, (samples, n)."""

    rows: Array
    l2: float

    def value(self, w: Array) -> float:
        """F(w)."""
        return float(np.logaddexp(0.0, -(self.rows @ w)).mean() + self.l2 / 2 * w @ w)

    def gradient(self, w: Array) -> Array:
        """(n,)."""
        wrong = _sigmoid(-(self.rows @ w))
        result: Array = -(wrong @ self.rows) / len(self.rows) + self.l2 * w
        return result

    def hessian(self, w: Array) -> Array:
        """(n, n)."""
        right = _sigmoid(self.rows @ w)
        weighted = self.rows * (right * (1.0 - right))[:, None]
        result: Array = weighted.T @ self.rows / len(self.rows) + self.l2 * np.eye(len(w))
        return result


def _sigmoid(z: Array) -> Array:
    result: Array = np.exp(-np.logaddexp(0.0, -z))
    return result


Solve = Callable[[Logistic], Array]
"""Gives w* (n,)."""


def digits(source: Path, setting: Setting, target: Path) -> Path:
    """Copy the chosen digits, with a mean of 0 and a deviation of 1, which leave pixels in [0, 1]."""
    if not target.exists():
        with h5py.File(source) as file, replacing(target) as aside, h5py.File(aside, "w") as copy:
            for split in ("train", "test"):
                labels = file[f"{split}/y"][()]
                rows = np.isin(labels, setting.labels)
                copy[f"{split}/x"], copy[f"{split}/y"] = file[f"{split}/x"][()][rows], labels[rows]
            copy.attrs["classes"] = file.attrs["classes"]
            copy.attrs["mean"], copy.attrs["std"] = 0.0, 1.0
    return target


def sections(setting: Setting, trial: Trial, data: Path) -> dict[str, Any]:
    """The sections of a run's job on ``data``, without a stop."""
    return {
        "name": "logistic",
        "model": {"name": "logistic", "dtype": "float64", "kwargs": {"bias": False}},
        "data": {"path": str(data.absolute()), "classes": setting.labels},
        "loss": {"name": "logistic", "l2": trial.l2},
        "scheme": {
            "name": "dane",
            "mu": trial.mu * trial.l2,
            "safeguard": trial.safeguard,
            "conjugate": trial.conjugate,
            "local": {"solver": "lbfgs", "gamma": setting.gamma, "passes": 200},
        },
        "train": {"epochs": 10**9, "batch_size": 1 << 14},
        "evaluate": {"every_epochs": 1e12},
        "log": {"timeline_events": 0},
        "cluster": {"workers": trial.workers},
        "device": {"kind": "cpu", "threads": 1},
    }


def run_trial(setting: Setting, trial: Trial, data: Path, optimum: Optimum) -> Outcome:
    """Run until the gap is small enough; a run on real ranks leaves its directory beside ``data``."""
    stop = {"objective": optimum.value * (1 + setting.tolerance), "steps": setting.rounds}
    config = _job(sections(setting, trial, data) | {"stop": stop})
    if trial.mpi:
        name = (
            f"mpi-{trial.l2:g}-{trial.workers}-{trial.mu:g}-{trial.safeguard:d}{trial.conjugate:d}"
        )
        end, rows = _on_ranks(config, data.with_name(name))
    else:
        ended = run(config, Several([]))
        end, rows = _end(ended.status, ended.reason), ended.rows
    row = [row for row in rows if row["kind"] in ("start", "step")][-1]
    gap = (row["objective"] - optimum.value) / optimum.value
    return Outcome(row["step"], end, gap, row["epoch"])


def minimum(
    setting: Setting, l2: float, data: Path, solve: Solve, shards: Sequence[int] = ()
) -> Optimum:
    """F* by ``solve``, from exact derivatives in float64.

    Args:
        setting: of the study.
        l2: weight of the penalty.
        data: the digits.
        solve: finds w*.
        shards: numbers of shards whose ``Limit`` is wanted, from w = 0 on.

    Raises:
        ValueError: the gradient that it ends with is not tiny.
    """
    config = _job(sections(setting, Trial(l2, 1, False, 0.0), data))
    train = job.assemble(config).data.train
    x, y = train.range(0, len(train))
    rows = x.flatten(1).double().numpy() * (2.0 * y.double().numpy() - 1.0)[:, None]
    problem = Logistic(rows, l2)
    w = solve(problem)
    value, norm = problem.value(w), float(np.linalg.norm(problem.gradient(w)))
    # F - F* <= |g|^2 / (2 l2), since F is l2-strongly convex.
    if not norm**2 / (2 * l2) <= _EXACT * value:
        raise ValueError(
            f"l2 = {l2:g}: the gradient at the optimum that was found is {norm:.1e} long"
        )
    found, wanted, mus = {}, setting.tolerance * value, [mu * l2 for mu in _MUS]
    for count in shards:
        parts = [rows[Shard(k, count, "iid", config.seed).rows(train)] for k in range(count)]
        hessians = [Logistic(part, l2).hessian(w) for part in parts]
        weights = [len(part) / len(rows) for part in parts]
        known = limit(problem.hessian(w), hessians, weights, w, wanted, mus)
        found[str(count)] = (known.alone, known.together)
    return Optimum(value, norm, found)


def _job(written: Mapping[str, Any]) -> JobConfig[Scheme]:
    config: JobConfig[Scheme] = job.Job.model_validate_json(json.dumps(written))
    return config


def _on_ranks(config: JobConfig[Scheme], folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """Run by ``psopt run``, a coordinator and the workers; its reason to end, and its metrics."""
    path = folder.with_name(f"{folder.name}.yaml")
    write_atomic(path, dump_job(config))
    command = [
        sys.executable,
        "-m",
        "psopt",
        "run",
        str(path),
        "-n",
        str(config.cluster.workers + 1),
    ]
    shutil.rmtree(folder, ignore_errors=True)  # of a study that was interrupted
    done = subprocess.run([*command, "--out", str(folder)], stdout=subprocess.DEVNULL)
    if done.returncode not in (EXITS["completed"], EXITS["diverged"]):
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    end = _end(summary["status"], summary["reason"])
    return end, read_metrics(folder / "metrics.jsonl")


def _end(status: str, reason: str) -> str:
    return reason if status == "completed" else status
