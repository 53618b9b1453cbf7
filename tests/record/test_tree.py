from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from psopt.record import CheckpointError, CheckpointStore, TreeError
from psopt.record.tree import escape, holds, read_tree, unescape, write_tree

QUANTISED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}
DTYPES = sorted(
    {value for value in vars(torch).values() if isinstance(value, torch.dtype)} - QUANTISED,
    key=str,
)


def round_trip(directory: Path, tree: dict[str, Any]) -> dict[str, Any]:
    store = CheckpointStore(directory, 1)
    return store.load(store.save(0, tree))


def bits(tensor: torch.Tensor) -> list[int]:
    if tensor.dtype.itemsize == 1:
        tensor = tensor.view(torch.uint8)
    flat = tensor.resolve_conj().contiguous().reshape(-1)
    return flat.view(torch.uint8).tolist() if flat.numel() else []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_kept_bit_by_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "ComplexHalf support is experimental")
        high = 2 if dtype == torch.bool else 256
        raw = torch.randint(0, high, (48 * dtype.itemsize,), generator=generator).to(torch.uint8)
        full = raw.view(dtype).reshape(6, 8)
        tree = {
            "full": full,
            "transposed": full.t(),
            "sliced": full[::2, 1:7:3],
            "scalar": full[0, 0],
            "one": full[:1, :1],
            "empty": full[:0],
            "nothing": full[:, :0][:0],
        }
        found = round_trip(tmp_path, tree)
        assert list(found) == list(tree)
        for name, tensor in tree.items():
            assert found[name].dtype == dtype
            assert found[name].shape == tensor.shape, name
            assert found[name].is_contiguous()
            assert bits(found[name]) == bits(tensor), name


def test_special_tensors(tmp_path: Path) -> None:
    complex_ = torch.tensor([1 + 2j, 3 - 4j])
    tree = {
        "conjugate": complex_.conj(),
        "negative": complex_.conj().imag,
        "expanded": torch.tensor([1.0]).expand(3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "nan": torch.tensor([0x7FA00001, -1], dtype=torch.int32).view(torch.float32),
    }
    found = round_trip(tmp_path, tree)
    assert found["conjugate"].tolist() == [1 - 2j, 3 + 4j]
    assert found["negative"].tolist() == [-2.0, 4.0]
    assert found["expanded"].tolist() == [1.0, 1.0, 1.0]
    assert not found["parameter"].requires_grad
    assert found["nan"].view(torch.int32).tolist() == [0x7FA00001, -1]


def test_json_values_are_exact(tmp_path: Path) -> None:
    tree = {
        "int": 2**127 + 1,
        "floats": [0.1, -0.0, 1e-320, math.inf, -math.inf, 1.0],
        "text": "é\n\0\ud800\"'",
        "none": None,
        "bools": [True, False, []],
        "empty": "",
        "groups": [{"lr": 0.1, "names": ["a", "b"]}, {}],
        "dict": {},
    }
    found = round_trip(tmp_path, tree)
    assert found == tree
    assert repr(found) == repr(tree)
    assert math.isnan(round_trip(tmp_path, {"x": math.nan})["x"])


keys = st.text(max_size=6) | st.sampled_from(["", ".", "..", "/", "%", "%.", "a/b", "%2E", "\0"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.lists(st.integers() | st.floats(allow_nan=False))
)
trees = st.dictionaries(
    keys, st.recursive(leaves, lambda t: st.dictionaries(keys, t), max_leaves=8), max_size=4
)


@settings(max_examples=40, deadline=None)
@given(trees)
def test_any_tree_comes_back_in_order(tree: dict[str, Any]) -> None:
    with h5py.File.in_memory(track_order=True) as file:
        write_tree(file, tree, check=lambda: None)
        assert repr(read_tree(file)) == repr(tree)
        assert holds(file, tree)


@given(keys, keys)
def test_keys_are_escaped_one_to_one(one: str, other: str) -> None:
    assert unescape(escape(one)) == one
    assert (escape(one) == escape(other)) == (one == other)
    assert "/" not in escape(one)
    assert escape(one) not in ("", ".", "..")


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.tensor([1.0, 2.0]), "b": 1},
        {"a": torch.tensor([1.0, -0.0], dtype=torch.float64), "b": 1},
        {"a": torch.tensor([[1.0, -0.0]]), "b": 1},
        {"a": torch.tensor([1.0, 0.0]), "b": 1},
        {"a": torch.tensor([1.0, -0.0]), "b": 1.0},
        {"a": torch.tensor([1.0, -0.0]), "b": True},
        {"a": torch.tensor([1.0, -0.0])},
        {"a": torch.tensor([1.0, -0.0]), "b": 1, "c": 1},
        {"a": {}, "b": 1},
        {"a": 1, "b": {}},
    ],
)
def test_comparison_sees_any_difference(other: dict[str, Any]) -> None:
    tree = {"a": torch.tensor([1.0, -0.0]), "b": 1}
    with h5py.File.in_memory(track_order=True) as file:
        write_tree(file, tree, check=lambda: None)
        assert holds(file, tree)
        assert not holds(file, other)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1, 2), "a tuple"),
        ([1, (2,)], r"\['x'\]\[1\]: a tuple"),
        ([{1: 2}], "the key 1 is not text"),
        ({1: 2}, "the key is int"),
        (torch.float32, "a dtype"),
        ({1, 2}, "a set"),
        (torch.eye(2).to_sparse(), "sparse"),
        ([torch.ones(1)], "a Tensor"),
    ],
)
def test_what_cannot_be_kept_is_named(tmp_path: Path, value: object, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        CheckpointStore(tmp_path, 1).save(0, {"y": 1, "x": value})
    assert list(tmp_path.iterdir()) == []


def test_links_to_elsewhere_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = 1
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["x"] = h5py.ExternalLink("other.h5", "/secret")
    with h5py.File(tmp_path / "file.h5") as file, pytest.raises(TreeError, match="a link"):
        read_tree(file)


def test_unknown_dtype_is_named() -> None:
    with h5py.File.in_memory() as file:
        file["x"] = 1
        file["x"].attrs["torch dtype"] = "load"
        with pytest.raises(TreeError, match="unknown dtype 'load'"):
            read_tree(file)
