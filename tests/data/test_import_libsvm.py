"""Importing LIBSVM text."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psopt.data import DataError, import_dataset
from tests.data.makers import libsvm, load


def test_libsvm_values(tmp_path: Path) -> None:
    train = libsvm(tmp_path / "train.txt")
    (tmp_path / "test.txt").write_text("+1 4:1\n")
    out = import_dataset("libsvm", train, tmp_path / "out.h5", test=tmp_path / "test.txt")
    arrays, attributes = load(out)
    want = [[0.5, 0, -2, 0], [0, 1e-3, 0, 0], [0, 0, 0, 0], [0, 0, 4, 0]]
    np.testing.assert_array_equal(arrays["train/x"], np.array(want, np.float32))
    assert arrays["train/y"].tolist() == [1, 0, 1, 0]
    assert arrays["test/x"].tolist() == [[0, 0, 0, 1]]
    assert list(attributes["classes"]) == ["-1", "1"]


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)],
)
def test_libsvm_compressed(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"in{suffix}"
    content = compress(b"1.5 0:1\n2.5 1:1\n3 2:1\n")
    path.write_bytes(content)
    arrays, _ = load(import_dataset("libsvm", path, tmp_path / "out.h5", features=5))
    assert arrays["train/x"].shape == (2, 5)
    assert arrays["train/y"].dtype == np.float32
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"cannot be read"):
        import_dataset("libsvm", path, tmp_path / "out2.h5")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "holds no samples"),
        ("# nothing\n\n", {}, "holds no samples"),
        ("1 1:1\n1 2\n", {}, r"in\.txt:2: '2': expected index:value"),
        ("1 1:1\n1 a:2\n", {}, r"in\.txt:2: 'a:2': expected index:value"),
        ("1 -1:1\n", {}, r":1: '-1:1': expected index:value"),
        ("1 2:1 1:1\n", {}, r":1: index 1 after 2; indices must rise"),
        ("1 2:1 2:1\n", {}, r":1: index 2 after 2"),
        ("1 2:x\n", {}, r":1: 'x' is not a number"),
        ("1 2:\n", {}, r":1: '' is not a number"),
        ("1 2:nan\n", {}, r":1: 'nan': expected a finite number"),
        ("inf 2:1\n", {}, r":1: 'inf': expected a finite number"),
        ("1,2 2:1\n", {}, r":1: '1,2' is not a number"),
        ("1 1:1\n2 4:1\n", {"features": 3}, "4 features occur, but features is 3"),
        ("1\n2\n", {}, "0 features occur"),
        ("1 1:1\n2 4:1\n", {"test": "in.txt", "test_fraction": 0.1}, "not both"),
        ("1 1:\xff\n", {}, "cannot be read"),
    ],
)
def test_wrong_libsvm(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    (tmp_path / "in.txt").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        import_dataset("libsvm", tmp_path / "in.txt", tmp_path / "out.h5", **options)
