"""Some classes of a dataset: only the samples of chosen labels, renumbered from 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from psopt.data.errors import DataError
from psopt.data.layout import Table


def choose_classes(
    path: Path, train: Table, test: Table, labels: Sequence[int]
) -> tuple[Table, Table]:
    """Both splits with the samples of the labels only; the first label becomes 0, the next 1, ...

    Args:
        path: the HDF5 file, for messages.
        train: the training samples.
        test: the test samples.
        labels: distinct, >= 0.

    Raises:
        DataError: y are no labels, a label does not occur among the training samples, or none of
            them does among the test samples.
    """
    if train.y.ndim == 2:
        raise DataError(
            f"{path}: its y are regression targets, of which data.classes can choose none; leave "
            "that key out"
        )
    missing = [label for label in labels if not (train.y == label).any()]
    if missing:
        there = ", ".join(map(str, np.unique(train.y)[:20]))
        raise DataError(
            f"{path}: data.classes: no training sample has the label {missing[0]}; those that occur "
            f"are {there}"
        )
    chosen = (_choose(train, labels), _choose(test, labels))
    if not chosen[1].rows:
        raise DataError(
            f"{path}: data.classes: no test sample has one of the labels "
            f"{', '.join(map(str, labels))}; evaluation needs some"
        )
    return chosen


def _choose(table: Table, labels: Sequence[int]) -> Table:
    rows = np.flatnonzero(np.isin(table.y, labels))
    order = np.argsort(labels)
    y = order[np.searchsorted(np.asarray(labels)[order], table.y[rows])]
    return replace(table, rows=len(rows), y=y.astype(np.int64), chosen=rows.astype(np.int64))
