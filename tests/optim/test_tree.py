"""Nested state, taken apart and put together."""

from __future__ import annotations

import json
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from psopt.optim.tree import flatten_tree, unflatten_tree

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.integers(0, 4).map(torch.arange),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


def tensors_of(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [t for inner in tree for t in tensors_of(inner)] if isinstance(tree, list) else []


def same(one: Any, other: Any) -> bool:
    """Equal, the tensors being the same objects."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other if isinstance(one, Tensor) else one == other and type(one) is type(other)


@given(TREES)
def test_there_and_back(tree: Any) -> None:
    structure, tensors = flatten_tree(tree)
    assert all(map(same, tensors, tensors_of(tree)))
    assert same(unflatten_tree(structure, tensors), tree)
    assert same(unflatten_tree(json.loads(json.dumps(structure)), tensors), tree)


def test_tuples_come_back_as_lists_and_keys_as_text() -> None:
    structure, tensors = flatten_tree({0: (1, torch.ones(2)), "a": []})
    assert unflatten_tree(structure, tensors) == {"0": [1, tensors[0]], "a": []}
