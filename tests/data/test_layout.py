"""Files that are no dataset: one clear error for each."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from psopt.data import DataError, open_dataset
from tests.data.conftest import Write

PLENTY = 2**31


U8 = np.zeros((30, 3, 4, 5), np.uint8)
LABELS = np.arange(30) % 3

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "missing array": ({"train_x": None}, "/train/x is missing"),
    "missing split": ({"test_x": None, "test_y": None}, "/test/x is missing"),
    "a group": ({"train_y": None, "train_y_z": U8}, "/train/y is no array"),
    "x and y differ": ({"train_x": U8[:29]}, "x has 29 samples, y has shape"),
    "scalar y": ({"train_y": np.int64(3)}, "one y each"),
    "flat x": ({"train_x": np.zeros(30, np.uint8)}, r"shape \(30,\), expected \(samples"),
    "empty sample": ({"train_x": np.zeros((30, 0), np.uint8)}, r"shape \(30, 0\)"),
    "empty split": ({"test_x": U8[:0], "test_y": LABELS[:0]}, "/test: holds no samples"),
    "shapes differ": ({"test_x": U8[:12, :, :3]}, "they must be alike"),
    "kinds of x differ": ({"test_x": U8[:12].astype(np.float32)}, "they must be alike"),
    "kinds of y differ": ({"test_y": np.zeros(12)}, "both must be labels"),
    "widths of y differ": (
        {"train_y": np.zeros((30, 2)), "test_y": np.zeros((12, 3))},
        "targets of one width",
    ),
    "integer x": ({"train_x": U8.astype(np.int64)}, "dtype int64; store uint8"),
    "text y": ({"train_y": [b"a"] * 30}, "store integer labels or float targets"),
    "two labels a sample": ({"train_y": np.zeros((30, 2), np.int64)}, r"expected \(samples,\)"),
    "deep targets": ({"train_y": np.zeros((30, 2, 2))}, r"expected \(samples, width\)"),
    "negative label": ({"train_y": LABELS - 1}, "row 0: label -1 is out of range"),
    "unseen test label": ({"test_y": np.full(12, 3)}, "test/y row 0: label 3 is out of range 0..2"),
    "huge label": ({"train_y": LABELS + 10**9}, "store regression targets as floats"),
    "label above classes": (
        {"attributes": {"classes": ["a", "b"]}},
        "label 2 is out of range 0..1",
    ),
    "classes are numbers": ({"attributes": {"classes": [1, 2, 3]}}, "expected a list of texts"),
    "mean of wrong length": ({"attributes": {"mean": [0.5, 0.5]}}, "each of the 3 channels"),
    "mean is text": ({"attributes": {"mean": "half"}}, "attribute mean: expected numbers"),
    "mean is NaN": ({"attributes": {"mean": np.nan}}, "attribute mean must be finite"),
    "std is zero": ({"attributes": {"std": [1.0, 0.0, 1.0]}}, "std must be positive"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_structure_is_one_clear_error(write: Write, case: str) -> None:
    changes, message = WRONG[case]
    path = write(**changes)
    with pytest.raises(DataError, match=message) as error:
        open_dataset(path, cache_bytes=PLENTY)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_no_such_file_and_no_such_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such dataset; make one with `psopt data import`"):
        open_dataset(tmp_path / "none.h5", cache_bytes=0)
    with pytest.raises(DataError, match="is a directory"):
        open_dataset(tmp_path, cache_bytes=0)
    (tmp_path / "text.h5").write_text("version https://example.org/spec")
    with pytest.raises(DataError, match="cannot be opened as HDF5"):
        open_dataset(tmp_path / "text.h5", cache_bytes=0)


def test_a_truncated_file(write: Write) -> None:
    path = write()
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataError, match=r"set\.h5: .*truncated"):
        open_dataset(path, cache_bytes=PLENTY)


@pytest.mark.parametrize("cache_bytes", [PLENTY, 0])
def test_damaged_values(tmp_path: Path, write: Write, cache_bytes: int) -> None:
    path = write()
    with h5py.File(path, "a") as file:
        raw = file["train/x"][()]
        del file["train/x"]
        x = file.create_dataset("train/x", data=raw, chunks=raw.shape, fletcher32=True)
        offset = x.id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)
    data = open_dataset(path, cache_bytes=cache_bytes)
    with pytest.raises(DataError, match=r"/train/x:? cannot be read: .*the file is damaged"):
        data.train.batch(np.arange(3))


_OPEN_OURS = "from psopt.data.layout import open_file; open_file(__import__('pathlib').Path(path))"
_OPEN_PLAIN = "import h5py; print(len(h5py.File(path)['train/x']))"


@pytest.mark.parametrize(("locking", "code"), [("TRUE", _OPEN_OURS), ("FALSE", _OPEN_PLAIN)])
def test_a_locked_file_names_the_variable_that_helps(write: Write, locking: str, code: str) -> None:
    """In a process of its own, for HDF5 reads the variable when it is loaded."""
    path = write()
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; path = sys.argv[1]; {code}", str(path)],
            env={**os.environ, "HDF5_USE_FILE_LOCKING": locking},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    if locking == "FALSE":
        assert (done.returncode, done.stdout) == (0, "30\n"), done.stderr
    else:
        message = done.stderr.splitlines()[-1]
        assert message.startswith("psopt.data.errors.DataError: ")
        assert str(path) in message
        assert "set HDF5_USE_FILE_LOCKING=FALSE in the environment of every rank" in message


@pytest.mark.parametrize("how", ["external link", "soft link", "external storage", "virtual"])
def test_values_in_other_files_are_refused(tmp_path: Path, write: Write, how: str) -> None:
    path = write()
    secret = tmp_path / "secret.h5"
    secret.write_bytes(path.read_bytes())
    with h5py.File(path, "a") as file:
        shape = file["train/x"].shape
        del file["train/x"]
        if how == "external link":
            file["train/x"] = h5py.ExternalLink(str(secret), "/train/x")
        elif how == "soft link":
            file["away"] = h5py.ExternalLink(str(secret), "/train")
            file["train/x"] = h5py.SoftLink("/away/x")
        elif how == "external storage":
            external = [(str(secret), 0, int(np.prod(shape)))]
            file.create_dataset("train/x", shape, np.uint8, external=external)
        else:
            layout = h5py.VirtualLayout(shape, np.uint8)
            layout[:] = h5py.VirtualSource(str(secret), "train/x", shape)
            file.create_virtual_dataset("train/x", layout)
    with pytest.raises(DataError, match=r"/train/x (is a link|keeps its values in other files)"):
        open_dataset(path, cache_bytes=0)
