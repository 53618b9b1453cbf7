"""The ridge problem of the DANE paper, small or large, with its optimum."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from tests.training import configured

L2 = 0.01


@dataclass(frozen=True)
class Ridge:
    """y = <x, (1, ..., 1)> + N(0, 1), x ~ N(0, diag(i^-1.2)); the loss is mse, with ``L2``."""

    path: Path
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]

    def objective(self, w: npt.NDArray[Any]) -> float:
        return float(((self.x @ w - self.y) ** 2).mean() + L2 / 2 * w @ w)

    def hessian(self, rows: Any = slice(None)) -> npt.NDArray[np.float64]:
        """Of the mean loss over some rows."""
        x = self.x[rows]
        return np.asarray(2 * x.T @ x / len(x))

    def gradient(self, w: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Of the objective."""
        return np.asarray(2 * self.x.T @ (self.x @ w - self.y) / len(self.y) + L2 * w)

    @property
    def least(self) -> float:
        """F*."""
        width = self.x.shape[1]
        slope = 2 * self.x.T @ self.y / len(self.y)
        return self.objective(np.linalg.solve(self.hessian() + L2 * np.eye(width), slope))

    def job(self, scheme: dict[str, Any], **changes: Any) -> Any:
        """DANE with exact local solves, unless ``scheme`` says otherwise."""
        local = {"solver": "cg", "gamma": 1e-6, "passes": 400}
        sections: dict[str, Any] = {
            "model": {"name": "linear", "dtype": "float64", "kwargs": {"bias": False}},
            "loss": {"name": "mse", "l2": L2},
            "scheme": {"name": "dane", "local": local, **scheme},
            "optimizer": None,
            "train": {"epochs": 100_000, "batch_size": 2000},
            "evaluate": {"every_steps": 1000},
        }
        return configured(self.path, **{**sections, **changes})


def ridge(folder: Path, samples: int, width: int, seed: int = 1) -> Ridge:
    """Samples in float32, as data sets hold them."""
    generator = np.random.default_rng(seed)
    scale = np.arange(1, width + 1) ** -0.6
    x = (generator.normal(size=(samples + 10, width)) * scale).astype(np.float32)
    y = (x.sum(1) + generator.normal(size=samples + 10)).astype(np.float32)[:, None]
    path = folder / f"ridge{samples}.h5"
    with h5py.File(path, "w") as file:
        for split, part in (("train", slice(0, samples)), ("test", slice(samples, None))):
            file.create_dataset(f"{split}/x", data=x[part])
            file.create_dataset(f"{split}/y", data=y[part])
    return Ridge(path, x[:samples].astype(np.float64), y[:samples, 0].astype(np.float64))
