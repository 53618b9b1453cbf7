"""A YAML text as a small tree of nodes that know their place.

Only PyYAML's composer is used: no value is constructed from a tag, so a file cannot make Python
objects. What kind of value a scalar is, the schema decides later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.reader import ReaderError

from psopt.config.problems import ConfigError, Located, Path, Place
from psopt.config.scalars import Scalar, resolve

MOST_ALIASES = 100
MOST_NODES = 100_000
MOST_LEVELS = 40


@dataclass(slots=True)
class ScalarNode:
    """Text, number, boolean or null; where it was not quoted, its text may be meant instead."""

    place: Place
    text: str
    value: Scalar
    plain: bool


@dataclass(slots=True)
class ListNode:
    """A sequence."""

    place: Place
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class MapNode:
    """A mapping; keys are text as written, each with its own place in `keys`."""

    place: Place
    items: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)


Node = ScalarNode | ListNode | MapNode


def value_of(node: Node) -> Any:
    """Return the tree as Python lists, dicts and scalars."""
    if isinstance(node, MapNode):
        return {key: value_of(item) for key, item in node.items.items()}
    if isinstance(node, ListNode):
        return [value_of(item) for item in node.items]
    return node.value


def texts_of(node: Node) -> Any:
    """Return the tree as Python lists, dicts and texts, as they are written."""
    if isinstance(node, MapNode):
        return {key: texts_of(item) for key, item in node.items.items()}
    if isinstance(node, ListNode):
        return [texts_of(item) for item in node.items]
    return node.text


def scalars(node: Node) -> Iterator[ScalarNode]:
    """Go through all single values of the tree, in order."""
    if isinstance(node, ScalarNode):
        yield node
    else:
        for child in node.items.values() if isinstance(node, MapNode) else node.items:
            yield from scalars(child)


def locate(root: Node, path: Path) -> tuple[Path, Node, Place]:
    """Follow a path to the deepest node that exists.

    Parts that are not in the tree are passed over: keys that are missing, or labels that a
    validator puts among the keys (the member of a union).

    Returns:
        The parts found, the node there, and the place of its key (of itself in a list).
    """
    found: list[str | int] = []
    node, key_place = root, root.place
    for part in path:
        if isinstance(node, MapNode) and str(part) in node.items:
            key_place = node.keys[str(part)]
            node = node.items[str(part)]
        elif isinstance(node, ListNode) and isinstance(part, int) and 0 <= part < len(node.items):
            node = node.items[part]
            key_place = node.place
        else:
            continue
        found.append(part)
    return tuple(found), node, key_place


def compose(text: str, source: str) -> tuple[Node | None, list[Located]]:
    """Read one YAML document.

    Args:
        text: the document.
        source: what to call it in errors: a file name.

    Returns:
        The tree (None where there is no value) and the faults that do not prevent one: tags,
        duplicate keys and the like.

    Raises:
        ConfigError: the text is not YAML, or is beyond the limits of this module.
    """
    try:
        composer = _Composer(text)
    except ReaderError as error:
        before = text[: error.position]
        place = Place(source, before.count("\n") + 1, error.position - before.rfind("\n"))
        message = f"the character {text[error.position]!a} is not allowed in YAML"
        raise ConfigError([Located(place, message)]) from None
    builder = _Builder(source)
    try:
        root = composer.get_single_node()
        tree = None if root is None else builder.build(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark or composer.get_mark()
        raise ConfigError([Located(_at(source, mark), _plain_words(error))]) from None
    except (
        ValueError,
        OverflowError,
    ):  # PyYAML on "\U99999999", the number of no character
        place = _at(source, composer.get_mark())
        raise ConfigError([Located(place, "this escape is no character")]) from None
    tags = [
        Located(_at(source, mark), f"the tag {tag!r} is refused: remove it (quote what is text)")
        for mark, tag in composer.tags
    ]
    return tree, tags + builder.faults


class _LimitError(yaml.MarkedYAMLError):
    """The text is beyond a limit."""

    def __init__(self, mark: Any, problem: str) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class _Composer(yaml.SafeLoader):
    """PyYAML's composer with limits; it notes tags instead of obeying them."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.tags: list[tuple[Any, str]] = []
        self._aliases = 0
        self._nodes = 0
        self._level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            self._aliases += 1
        elif event.tag is not None:
            self.tags.append((mark, event.tag))
        self._nodes += 1
        self._level += 1
        if self._aliases > MOST_ALIASES:
            raise _LimitError(mark, f"more than {MOST_ALIASES} aliases")
        if self._nodes > MOST_NODES:
            raise _LimitError(mark, f"more than {MOST_NODES} values")
        if self._level > MOST_LEVELS:
            raise _LimitError(mark, f"nested more than {MOST_LEVELS} levels deep")
        node = super().compose_node(parent, index)
        self._level -= 1
        return node


class _Builder:
    """Turns PyYAML's nodes into ours, expanding aliases within the limits."""

    def __init__(self, source: str) -> None:
        self.faults: list[Located] = []
        self._source = source
        self._count = 0
        self._open: list[Any] = []

    def build(self, node: Any) -> Node:
        self._count += 1
        if self._count > MOST_NODES:
            raise _LimitError(node.start_mark, f"aliases expand to more than {MOST_NODES} values")
        if any(outer is node for outer in self._open):
            raise _LimitError(node.start_mark, "an alias inside its own anchor never ends")
        if len(self._open) >= MOST_LEVELS:
            raise _LimitError(node.start_mark, f"aliases nest more than {MOST_LEVELS} levels deep")
        place = _at(self._source, node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            plain = node.style is None
            if fault := _half_character(node.value):
                self.faults.append(Located(place, fault))
                return ScalarNode(place, "", None, plain=True)
            value = resolve(node.value) if plain else node.value
            return ScalarNode(place, node.value, value, plain)
        self._open.append(node)
        if isinstance(node, yaml.SequenceNode):
            built: Node = ListNode(place, [self.build(item) for item in node.value])
        else:
            built = self._mapping(place, node.value)
        self._open.pop()
        return built

    def _mapping(self, place: Place, pairs: Sequence[tuple[Any, Any]]) -> MapNode:
        mapping = MapNode(place)
        seen: dict[str, int] = {}
        for key, value in pairs:
            at = _at(self._source, key.start_mark)
            same = _same_key(key) if isinstance(key, yaml.ScalarNode) else ""
            fault = self._key_fault(key)
            if not fault and same in seen:
                fault = f"duplicate key {key.value!r}: on line {seen[same]} and on line {at.line}"
            if fault:
                self.faults.append(Located(at, fault))
                continue
            seen[same] = key.start_mark.line + 1
            mapping.items[key.value] = self.build(value)
            mapping.keys[key.value] = at
        return mapping

    @staticmethod
    def _key_fault(key: Any) -> str:
        if not isinstance(key, yaml.ScalarNode):
            return "a key must be one word, not a list or a mapping"
        if key.style is None and key.value == "<<":
            return "merge keys ('<<') are refused: write out the keys that are meant"
        return _half_character(key.value)


def _same_key(key: Any) -> str:
    """Return what two keys have in common that mean the same, such as 1 and 01."""
    number = re.fullmatch(r"[+]?0*([0-9]+)", key.value) if key.style is None else None
    return str(number[1] if number else key.value)


def _half_character(text: str) -> str:
    """Say what is wrong with a text that holds half of a surrogate pair, or return nothing."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        return f"{text!a} has half a surrogate pair, which is no character"
    return ""


def _at(source: str, mark: Any) -> Place:
    return Place(source, mark.line + 1, mark.column + 1)


def _plain_words(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem)
    if "'\\t'" in problem:
        return "a tab cannot indent or separate YAML: use spaces"
    if problem == "but found another document":
        return "a second document begins here: a job file holds one"
    if isinstance(error, _LimitError):
        return problem
    return "not YAML: " + (f"{error.context}, {problem}" if error.context else problem)
