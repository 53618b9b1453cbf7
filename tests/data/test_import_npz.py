"""Importing NumPy archives."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psopt.data import DataError, import_dataset, info, open_dataset
from tests.data.makers import GENERATOR, load, npz


def npz_arrays(tmp_path: Path, options: dict[str, Any], **arrays: Any) -> tuple[Any, Any]:
    np.savez(tmp_path / "in.npz", **arrays)
    return load(import_dataset("npz", tmp_path / "in.npz", tmp_path / "out.h5", **options))


@pytest.mark.parametrize(
    ("shape", "options", "want"),
    [
        ((10, 8, 9), {}, (1, 8, 9)),
        ((10, 8, 9, 3), {}, (3, 8, 9)),
        ((10, 3, 8, 9), {}, (3, 8, 9)),
        ((10, 3, 9, 3), {}, (3, 9, 3)),
        ((10, 3, 9, 3), {"layout": "channels_last"}, (3, 3, 9)),
        ((10, 8, 9, 3), {"layout": "channels_first"}, (8, 9, 3)),
        ((10, 7), {}, (7,)),
        ((10,), {}, (1,)),
    ],
)
def test_npz_shapes(
    tmp_path: Path, shape: tuple[int, ...], options: dict[str, Any], want: tuple[int, ...]
) -> None:
    x = GENERATOR.integers(0, 256, shape, np.uint8)
    y = np.arange(10) % 2
    arrays, _ = npz_arrays(tmp_path, options, x_train=x, y_train=y, x_test=x, y_test=y)
    assert arrays["train/x"].shape == (10, *want)
    assert arrays["train/x"].dtype == np.uint8
    if len(shape) == 4 and options.get("layout") != "channels_first" and shape[1] == 8:
        assert np.array_equal(arrays["train/x"][4, 1], x[4, :, :, 1])


@pytest.mark.parametrize(
    ("y", "options", "labels", "names"),
    [
        (np.arange(6) % 3, {}, [0, 1, 2, 0, 1, 2], ["0", "1", "2"]),
        (np.arange(6)[:, None] % 3, {}, [0, 1, 2, 0, 1, 2], ["0", "1", "2"]),
        (np.array([-1, 1, 1, -1, 1, 1]), {}, [0, 1, 1, 0, 1, 1], ["-1", "1"]),
        (np.array([5.0, 9, 5, 9, 5, 9]), {}, [0, 1, 0, 1, 0, 1], ["5", "9"]),
        (np.array(["b", "a", "b", "a", "b", "a"]), {}, [1, 0, 1, 0, 1, 0], ["a", "b"]),
        (np.array([b"b", b"a"] * 3), {}, [1, 0, 1, 0, 1, 0], ["a", "b"]),
        (np.array([True, False] * 3), {}, [1, 0, 1, 0, 1, 0], ["False", "True"]),
        (np.array([0.5, 1.5] * 3), {"target": "classes"}, [0, 1, 0, 1, 0, 1], ["0.5", "1.5"]),
    ],
)
def test_npz_labels(
    tmp_path: Path, y: Any, options: dict[str, Any], labels: list[int], names: list[str]
) -> None:
    x = GENERATOR.standard_normal((6, 4))
    arrays, attributes = npz_arrays(tmp_path, options, x_train=x, y_train=y, x_test=x, y_test=y)
    assert arrays["train/y"].dtype == np.int64
    assert arrays["train/y"].tolist() == labels
    assert list(attributes["classes"]) == names
    assert arrays["train/x"].dtype == np.float32


@pytest.mark.parametrize(
    ("y", "options"),
    [
        (np.arange(6) / 4, {}),
        (np.arange(6), {"target": "values"}),
        (np.zeros((6, 2)), {}),
    ],
)
def test_npz_regression(tmp_path: Path, y: Any, options: dict[str, Any]) -> None:
    x = GENERATOR.standard_normal((6, 4))
    arrays, attributes = npz_arrays(tmp_path, options, x_train=x, y_train=y, x_test=x, y_test=y)
    assert arrays["train/y"].dtype == np.float32
    np.testing.assert_array_equal(arrays["train/y"], y.astype(np.float32))
    assert "classes" not in attributes
    assert open_dataset(tmp_path / "out.h5", cache_bytes=0).regression
    assert "values" in info(tmp_path / "out.h5")


def test_npz_is_split_by_fraction(tmp_path: Path) -> None:
    x = np.arange(50.0)[:, None]
    arrays, _ = npz_arrays(tmp_path, {"test_fraction": 0.3}, x=x, y=np.arange(50) % 5)
    assert len(arrays["test/x"]) == 15
    assert sorted(np.concatenate([arrays["train/x"], arrays["test/x"]]).ravel()) == list(range(50))
    for split in ("train", "test"):
        assert np.array_equal(arrays[f"{split}/y"], arrays[f"{split}/x"].ravel() % 5)


X, Y = np.zeros((6, 4)), np.arange(6)


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"a": X}, {}, "expected x_train, y_train, x_test, y_test, or x and y"),
        ({"x_train": X, "y_train": Y}, {}, "expected x_train"),
        ({"x": X, "y": Y[:5]}, {}, r"x has shape \(6, 4\) and y \(5,\)"),
        ({"x": X[:0], "y": Y[:0]}, {}, "expected one y for each sample"),
        ({"x": X[:1], "y": Y[:1]}, {}, "1 samples cannot be split"),
        ({"x": X, "y": Y}, {"test_fraction": 1.0}, r"must be in \(0, 1\), not 1.0"),
        ({"x": X, "y": Y}, {"target": "labels"}, 'target must be "auto"'),
        ({"x": X, "y": Y}, {"layout": "nhwc"}, 'layout must be "auto"'),
        ({"x": X.astype(complex), "y": Y}, {}, "x is complex128, expected numbers"),
        ({"x": X, "y": Y * 1j}, {}, "expected numbers or texts"),
        ({"x": X, "y": np.where(Y == 3, np.nan, Y)}, {}, "NaN or infinite"),
        ({"x": X, "y": np.array(["a"] * 6)}, {"target": "values"}, "can only be classes"),
        ({"x": X, "y": np.zeros((6, 2))}, {"target": "classes"}, "one label a sample"),
        ({"x": X + np.inf, "y": Y}, {}, "x: sample 0 has NaN or infinity"),
        ({"x": X, "y": np.array([None] * 6)}, {}, "no NumPy archive of plain arrays"),
        (
            {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y},
            {"test_fraction": 0.2},
            "test set of its own",
        ),
    ],
)
def test_wrong_npz(
    tmp_path: Path, arrays: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        npz_arrays(tmp_path, options, **arrays)
    assert not (tmp_path / "out.h5").exists()


class _Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize(
    "content", [b"", b"text", pickle.dumps(_Bomb()), b"\x93NUMPY", b"PK\x03\x04 cut"]
)
def test_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in.npz").write_bytes(content)
    with pytest.raises(DataError, match="no NumPy archive of plain arrays"):
        import_dataset("npz", tmp_path / "in.npz", tmp_path / "out.h5")


def test_a_truncated_archive(tmp_path: Path) -> None:
    path = npz(tmp_path / "in.npz")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match="no NumPy archive of plain arrays"):
        import_dataset("npz", path, tmp_path / "out.h5")
