"""Importing IDX files."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from psopt.data import DataError, import_dataset
from tests.data.conftest import idx
from tests.data.makers import load


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("dot", [False, True])
def test_mnist_values_and_names(mnist: Path, tmp_path: Path, zipped: bool, dot: bool) -> None:
    want = {path.name: path.read_bytes() for path in mnist.iterdir()}
    for path in list(mnist.iterdir()):
        name = path.name.replace("-idx", ".idx") if dot else path.name
        content = path.read_bytes()
        path.unlink()
        (mnist / (name + ".gz" if zipped else name)).write_bytes(
            gzip.compress(content) if zipped else content
        )
    arrays, attributes = load(import_dataset("mnist", mnist, tmp_path / "out.h5"))
    assert arrays["train/x"].shape == (90, 1, 28, 28)
    assert arrays["train/x"].dtype == np.uint8
    assert arrays["train/x"].tobytes() == want["train-images-idx3-ubyte"][16:]
    assert arrays["test/y"].tolist() == [row % 10 for row in range(40)]
    assert list(attributes["classes"]) == list("0123456789")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], "says 70560 bytes of values, it holds 70559"),
        (lambda content: content + b"x", "it holds more"),
        (lambda content: content[:9], "not an IDX file"),
        (lambda content: b"", "starts with nothing"),
        (lambda content: b"\x89PNG" + content, "starts with 89 50 4e 47"),
        (lambda content: content[:2] + b"\x0d" + content[3:], "unsigned bytes in 3 dimensions"),
        (
            lambda content: content[:4] + b"\xff" * 12 + content[16:],
            "more than such a file can hold",
        ),
        (lambda content: idx(np.zeros((89, 28, 28))), "89 images but 90 labels"),
    ],
)
def test_damaged_idx(
    mnist: Path, tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    path = mnist / "train-images-idx3-ubyte"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        import_dataset("mnist", mnist, tmp_path / "out.h5")


@pytest.mark.parametrize("cut", [1, 3000, -4, -100])
def test_damaged_gzip(mnist: Path, tmp_path: Path, cut: int) -> None:
    path = mnist / "train-images-idx3-ubyte"
    (mnist / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(path.read_bytes())[:cut])
    path.unlink()
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: .*fetch the file again"):
        import_dataset("mnist", mnist, tmp_path / "out.h5")


def test_corrupt_gzip_and_missing_file(mnist: Path, tmp_path: Path) -> None:
    path = mnist / "train-images-idx3-ubyte"
    content = bytearray(gzip.compress(path.read_bytes()))
    content[len(content) // 2] ^= 0xFF
    path.unlink()
    with pytest.raises(DataError, match="holds none of train-images-idx3-ubyte, train-images-idx3"):
        import_dataset("mnist", mnist, tmp_path / "out.h5")
    (mnist / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz"):
        import_dataset("mnist", mnist, tmp_path / "out.h5")
