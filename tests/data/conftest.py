"""Small datasets and files to import, made on the spot."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """write({"mean": 1.0}, train_x=array): a valid dataset with changes; None drops an array."""

    def _write(attributes: dict[str, Any] | None = None, **changes: Any) -> Path:
        generator = np.random.default_rng(3)
        arrays: dict[str, Any] = {
            "train/x": generator.integers(0, 256, (30, 3, 4, 5), np.uint8),
            "train/y": np.arange(30) % 3,
            "test/x": generator.integers(0, 256, (12, 3, 4, 5), np.uint8),
            "test/y": np.arange(12) % 3,
        }
        arrays.update({key.replace("_", "/"): value for key, value in changes.items()})
        path = tmp_path / "set.h5"
        with h5py.File(path, "w") as file:
            for key, value in arrays.items():
                if value is not None:
                    file.create_dataset(key, data=value)
            file.attrs.update(attributes or {})
        return path

    return _write


def idx(values: np.ndarray[Any, Any]) -> bytes:
    """An IDX file of unsigned bytes."""
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return head + values.astype(np.uint8).tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """A directory with 90 and 40 random 28x28 digits, as IDX files."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    generator = np.random.default_rng(5)
    for name, count in (("train", 90), ("t10k", 40)):
        images = generator.integers(0, 256, (count, 28, 28))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx(np.arange(count) % 10))
    return folder
