"""Nested state (dictionaries of tensors and plain values) taken apart into a structure and a list of tensors.

The structure is plain data (JSON-able), the tensors travel or are saved beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

_TENSOR = "__tensor__"


def flatten_tree(tree: Any) -> tuple[Any, list[Tensor]]:
    """Structure of ``tree`` with every tensor replaced by its position, and the tensors."""
    tensors: list[Tensor] = []

    def walk(node: Any) -> Any:
        if isinstance(node, Tensor):
            tensors.append(node)
            return {_TENSOR: len(tensors) - 1}
        if isinstance(node, dict):
            return {str(key): walk(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [walk(value) for value in node]
        return node

    return walk(tree), tensors


def unflatten_tree(structure: Any, tensors: Sequence[Tensor]) -> Any:
    """The tree that ``flatten_tree`` took apart (tuples come back as lists, keys as text)."""
    if isinstance(structure, dict):
        if structure.keys() == {_TENSOR}:
            return tensors[structure[_TENSOR]]
        return {key: unflatten_tree(value, tensors) for key, value in structure.items()}
    if isinstance(structure, list):
        return [unflatten_tree(value, tensors) for value in structure]
    return structure
