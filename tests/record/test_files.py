from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from psopt.record import to_json, write_atomic
from psopt.record.files import replacing


def test_json_has_null_for_what_is_not_finite() -> None:
    value = {"a": math.nan, "b": [math.inf, (-math.inf, 1.5)], "c": np.float32("nan")}
    assert json.loads(to_json(value)) == {"a": None, "b": [None, [None, 1.5]], "c": None}


def test_json_takes_numpy_scalars_and_paths() -> None:
    value = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": Path("x/y")}
    assert to_json(value) == '{"a": 0.5, "b": 3, "c": true, "d": "x/y"}'


def test_json_refuses_other_types() -> None:
    with pytest.raises(TypeError, match="set"):
        to_json({"a": {1, 2}})


def test_json_keeps_floats_exact() -> None:
    assert json.loads(to_json(0.1 + 0.2)) == 0.1 + 0.2


def test_atomic_write_replaces(tmp_path: Path) -> None:
    path = tmp_path / "file (1) 'x'.json"
    write_atomic(path, "old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def write_half() -> None:
        with replacing(path) as handle:
            handle.write(b"new")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "missing" / "a", tmp_path / "file" / "a"):
        with pytest.raises(OSError, match=path.parent.name):
            write_atomic(path, "text")
