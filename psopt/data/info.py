"""What `psopt data info` prints of a dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from psopt.config import one_line
from psopt.data.dataset import Dataset, open_dataset

_LISTED = 20


def info(path: str | Path) -> str:
    """A page of text: size, shapes, classes and how many samples each has, normalisation, origin.

    Raises:
        DataError: the file is missing, locked, damaged, or not a dataset.
    """
    dataset = open_dataset(path, cache_bytes=0)
    attributes = dataset.attributes
    lines = [
        ("file", f"{dataset.path} ({dataset.path.stat().st_size / 2**20:.1f} MiB)"),
        ("train", _samples(dataset, len(dataset.train))),
        ("test", _samples(dataset, len(dataset.test))),
        ("outputs", f"{dataset.outputs} {'values' if dataset.regression else 'classes'}"),
        *(("", line) for line in _targets(dataset)),
        *(
            (key, _numbers(np.ravel(attributes[key])))
            for key in ("mean", "std")
            if key in attributes
        ),
        *((key, str(attributes.get(key) or "unknown")) for key in ("source", "licence")),
        ("created by", str(attributes.get("created_by") or "unknown")),
    ]
    return "\n".join(f"{key:<12}{one_line(value)}".rstrip() for key, value in lines)


def _samples(dataset: Dataset, count: int) -> str:
    shape = "x".join(map(str, dataset.input_shape))
    return f"{count} samples of {shape} {dataset.train.raw_dtype}"


def _targets(dataset: Dataset) -> list[str]:
    """A line a class with its counts, or a line a target with its range."""
    train, test = dataset.train.y, dataset.test.y
    if dataset.regression:
        low, high = train.min(dim=0).values, train.max(dim=0).values
        lines = [f"{i}: {a:g} to {b:g}" for i, (a, b) in enumerate(zip(low, high, strict=True))]
    else:
        names = dataset.classes or [str(label) for label in range(dataset.outputs)]
        counts = [torch.bincount(y, minlength=dataset.outputs).tolist() for y in (train, test)]
        lines = [f"{name}: {a} train, {b} test" for name, a, b in zip(names, *counts, strict=True)]
    more = len(lines) - _LISTED
    return [*lines[:_LISTED], f"... and {more} more"] if more > 0 else lines


def _numbers(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:8])
    return shown + (f", ... ({values.size} values)" if values.size > 8 else "")
