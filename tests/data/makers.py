"""Small valid sources of every format, and reading what an import wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image

GENERATOR = np.random.default_rng(11)


def load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(arrays by path, root attributes) of a dataset."""
    with h5py.File(path) as file:
        names = ("train/x", "train/y", "test/x", "test/y")
        return {name: file[name][()] for name in names}, dict(file.attrs)


def cifar10(folder: Path) -> Path:
    folder.mkdir()
    for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
        records = GENERATOR.integers(0, 256, (20, 3073), np.uint8)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(f"class{n}" for n in range(10)) + "\n\n")
    return folder


def cifar100(folder: Path) -> Path:
    folder.mkdir()
    for name, count in (("train", 50), ("test", 10)):
        records = GENERATOR.integers(0, 256, (count, 3074), np.uint8)
        records[:, 0] %= 20
        records[:, 1] %= 100
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    for kind, count in (("coarse", 20), ("fine", 100)):
        lines = "\n".join(f"{kind}{n}" for n in range(count))
        (folder / f"{kind}_label_names.txt").write_text(lines)
    return folder


def npz(path: Path) -> Path:
    y = np.arange(12) % 3
    x = GENERATOR.integers(0, 256, (12, 8, 8), np.uint8)
    np.savez(path, x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    return path


def libsvm(path: Path) -> Path:
    path.write_text("+1 1:0.5 3:-2 # first\n-1 2:1e-3\n\n+1\n-1 qid:7 3:4\n")
    return path


def images(folder: Path) -> Path:
    for split, count in (("train", 6), ("test", 2)):
        for name in ("cats", "dogs"):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = GENERATOR.integers(0, 256, (5, 7, 3), np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{number}.png")
    return folder


MAKERS: dict[str, Callable[[Path], Path]] = {
    "cifar": cifar10,
    "npz": npz,
    "libsvm": libsvm,
    "images": images,
}
