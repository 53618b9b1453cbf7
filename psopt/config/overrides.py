"""`--set key.key=value`: changes to a job file from the command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psopt.config.nodes import MOST_LEVELS, ListNode, MapNode, Node, ScalarNode, compose
from psopt.config.problems import ConfigError, Located, Place, dotted


@dataclass(frozen=True, slots=True)
class Override:
    """One change: the keys from the top, and the value to put there."""

    place: Place
    keys: tuple[str, ...]
    value: Node


def parse_overrides(texts: Iterable[str]) -> tuple[list[Override], list[Located]]:
    """Read overrides; the value is YAML of one line: `3`, `no`, `[1, 2]`, `{name: bsp}`.

    Returns:
        The changes, and what is wrong with those that are none.
    """
    changes, faults = [], []
    for text in texts:
        place = Place(f"--set {text}")
        key, equals, value = text.partition("=")
        keys = tuple(key.strip().split("."))
        if not equals or not all(keys) or not key.isprintable() or len(keys) > MOST_LEVELS:
            faults.append(Located(place, "write key=value, with dots between nested keys"))
            continue
        try:
            node, found = compose(value, place.source)
        except ConfigError as error:
            faults += [Located(place, problem.message) for problem in error.problems]
            continue
        faults += [Located(place, problem.message) for problem in found]
        node = ScalarNode(place, "", None, plain=True) if node is None else node
        _put_at(place, node)
        changes.append(Override(place, keys, node))
    return changes, faults


def apply(root: MapNode, change: Override) -> Located | None:
    """Make a change in the tree, with the mappings that it needs; a fault if it cannot be made."""
    node: Node = root
    for depth, key in enumerate(change.keys):
        last = depth == len(change.keys) - 1
        if isinstance(node, MapNode):
            child = change.value if last else node.items.get(key)
            if child is None or (
                isinstance(child, ScalarNode) and child.value is None and not last
            ):
                child = MapNode(change.place)
            if key not in node.items or last:
                node.keys[key] = change.place
            node.items[key] = child
        elif isinstance(node, ListNode) and key.isdecimal() and int(key) < len(node.items):
            if last:
                node.items[int(key)] = change.value
            child = node.items[int(key)]
        else:
            return Located(change.place, _dead_end(node, change.keys[:depth], key))
        node = child
    return None


def _dead_end(node: Node, above: tuple[str, ...], key: str) -> str:
    if isinstance(node, ListNode):
        return f"{dotted(above)} is a list of {len(node.items)}: {key!r} is not a position in it"
    return f"{dotted(above)} is a single value ({node.place}), so it has no key {key!r}"


def _put_at(place: Place, node: Node) -> None:
    node.place = place
    if isinstance(node, MapNode):
        node.keys = dict.fromkeys(node.keys, place)
        for item in node.items.values():
            _put_at(place, item)
    elif isinstance(node, ListNode):
        for item in node.items:
            _put_at(place, item)
