"""Importing CIFAR's binary version."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from psopt.data import DataError, import_dataset
from tests.data.makers import cifar10, cifar100, load


def test_cifar10_values(tmp_path: Path) -> None:
    source = cifar10(tmp_path / "source")
    arrays, attributes = load(import_dataset("cifar", source, tmp_path / "out.h5"))
    assert arrays["train/x"].shape == (100, 3, 32, 32)
    record = np.frombuffer((source / "data_batch_2.bin").read_bytes()[3073 * 4 :][:3073], np.uint8)
    assert arrays["train/y"][24] == record[0]
    assert arrays["train/x"][24].tobytes() == record[1:].tobytes()
    assert attributes["classes"][3] == "class3"
    assert attributes["mean"].shape == (3,)


@pytest.mark.parametrize(("labels", "column", "count"), [("coarse", 0, 20), ("fine", 1, 100)])
def test_cifar100_values(tmp_path: Path, labels: str, column: int, count: int) -> None:
    source = cifar100(tmp_path / "source")
    out = import_dataset("cifar", source, tmp_path / "out.h5", labels=labels)
    arrays, attributes = load(out)
    record = np.frombuffer((source / "train.bin").read_bytes()[3074 * 7 :][:3074], np.uint8)
    assert arrays["train/y"][7] == record[column]
    assert arrays["train/x"][7].tobytes() == record[2:].tobytes()
    assert len(attributes["classes"]) == count


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "data_batch_3.bin",
            b"\0" * 3072,
            "3072 bytes are not a whole number of 3073-byte records",
        ),
        ("test_batch.bin", b"", "0 bytes are not a whole number"),
        ("test_batch.bin", b"\x0a" * 3073, "record 0 has label 10, expected 0..9"),
        ("batches.meta.txt", b"cat dog", "holds 2 class names, expected 10"),
        ("batches.meta.txt", b"\xff\xfe\xff", "cannot be read"),
        ("data_batch_5.bin", None, "data_batch_5.bin: cannot be read"),
    ],
)
def test_damaged_cifar(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    source = cifar10(tmp_path / "source")
    (source / name).unlink()
    if content is not None:
        (source / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        import_dataset("cifar", source, tmp_path / "out.h5")
    with pytest.raises(DataError, match='labels must be "fine" or "coarse"'):
        import_dataset("cifar", source, tmp_path / "out.h5", labels="medium")
