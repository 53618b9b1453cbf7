"""Copies of trees, for who goes on changing the original, into memory that is used again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from psopt.record.tree import Tree, bits_of, json_copy


class TreeCopier:
    """Makes one copy at a time: the next one is made in the memory of the one before.

    On the host a copy costs as much memory as the tree's tensors, once, and no new pages later.
    """

    def __init__(self) -> None:
        self._kept: dict[str, torch.Tensor] = {}

    def copy(self, tree: Mapping[str, Any]) -> Tree:
        """A copy on the CPU that has nothing in common with ``tree``; the copy before is void.

        Raises:
            TreeError: the tree holds a value that cannot be kept.
        """
        used: dict[str, torch.Tensor] = {}
        copied = self._copy(tree, "tree", used)
        self._kept = used  # what this tree has no place for is freed
        return copied

    def _copy(self, tree: Mapping[str, Any], where: str, used: dict[str, torch.Tensor]) -> Tree:
        copied: Tree = {}
        for key, value in tree.items():
            place = f"{where}[{key!r}]"
            if isinstance(value, Mapping):
                copied[key] = self._copy(value, place, used)
            elif isinstance(value, torch.Tensor):
                copied[key] = self._tensor(value, place, used)
            else:
                copied[key] = json_copy(value, place)
        return copied

    def _tensor(
        self, value: torch.Tensor, place: str, used: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        bits = bits_of(value, place)
        memory = self._kept.get(place)
        if memory is None or memory.shape != bits.shape or memory.dtype != bits.dtype:
            memory = torch.empty(bits.shape, dtype=bits.dtype)
        used[place] = memory.copy_(bits)
        return memory.view(value.dtype)
