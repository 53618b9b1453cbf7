"""Writing an imported dataset: whole or absent, finite, normalised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psopt.data import DataError, info, open_dataset
from psopt.data.importers.table import Imported, Part, write_dataset
from tests.data.makers import GENERATOR, load


def test_a_failure_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    class Failing:
        shape, dtype = (10, 3), np.dtype(np.float32)

        def __getitem__(self, rows: slice) -> Any:
            raise OSError(28, "No space left on device")

    part = Part(Failing(), np.zeros(10))
    with pytest.raises(DataError, match=r"out\.h5: cannot be written: .*No space left"):
        write_dataset(Imported(part, part, None, "test"), tmp_path / "out.h5")
    assert list(tmp_path.iterdir()) == []


def test_nan_is_refused_with_its_row(tmp_path: Path) -> None:
    x = np.zeros((10, 3), np.float32)
    x[7, 1] = np.nan
    part = Part(x, np.zeros(10))
    with pytest.raises(DataError, match="train x: sample 7 has NaN or infinity"):
        write_dataset(Imported(part, part, None, "test"), tmp_path / "out.h5")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (np.zeros((0, 3)), np.zeros((2, 3)), "no train samples"),
        (np.zeros((2, 3)), np.zeros((0, 3)), "no test samples"),
        (np.zeros((2, 3)), np.zeros((2, 4)), "they must be alike"),
    ],
)
def test_unfit_parts(train: Any, test: Any, message: str, tmp_path: Path) -> None:
    data = Imported(Part(train, train[:, 0]), Part(test, test[:, 0]), None, "test")
    with pytest.raises(DataError, match=message):
        write_dataset(data, tmp_path / "out.h5")


def test_normalisation_far_from_zero_and_of_constants(tmp_path: Path) -> None:
    x = np.stack([1e4 + GENERATOR.standard_normal(5000), np.full(5000, 3.0)], axis=1)
    part = Part(x.astype(np.float32), np.zeros(5000))
    out = write_dataset(Imported(part, part, None, "test"), tmp_path / "out.h5")
    attributes = load(out)[1]
    want = x.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(attributes["mean"], want.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(attributes["std"], [want[:, 0].std(), 1.0], rtol=1e-9)


def test_more_features_than_a_small_attribute_holds(tmp_path: Path) -> None:
    x = GENERATOR.standard_normal((3, 40_000)).astype(np.float32)
    part = Part(x, np.arange(3))
    out = write_dataset(Imported(part, part, ("a", "b", "c"), "test"), tmp_path / "out.h5")
    assert open_dataset(out, cache_bytes=0).train.range(0, 3)[0].shape == (3, 40_000)
    assert "(40000 values)" in info(out)
