"""What a sweep file stands for: the values of every run. A pure function of the file."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from psopt.config import (
    SEED,
    Distribution,
    ListNode,
    MapNode,
    Node,
    Place,
    ScalarNode,
    SweepConfig,
    value_of,
)

_DIGITS = 6  # of a drawn number: the same on every machine, and short enough to be read


@dataclass(frozen=True, slots=True)
class Setting:
    """A key and the value that a run has there.

    Attributes:
        key: dotted.
        place: of the key, for errors.
        node: the value, which knows its own place.
    """

    key: str
    place: Place
    node: Node

    @property
    def value(self) -> Any:
        """As it is written."""
        return value_of(self.node)


def fixed_settings(root: MapNode) -> list[Setting]:
    """What all runs override, of the tree of a valid sweep file."""
    section = _section(root, "fixed")
    return [Setting(key, section.keys[key], node) for key, node in section.items.items()]


def assignments(config: SweepConfig, root: MapNode) -> Iterator[tuple[Setting, ...]]:
    """Yield what each run sets, those included that `exclude` names.

    Grid keys change slowest, in the order of the file, and seeds fastest. The draws are the same at
    every point, and each depends on the seed of the draws, its number and its key alone: more draws,
    or other keys, leave it as it is.

    Args:
        config: the sweep.
        root: the tree that it was read from.
    """
    grid = _section(root, "grid")
    columns = [_settings(grid, key) for key in config.grid]
    zipped = _section(root, "zip")
    rows = [*zip(*(_settings(zipped, key) for key in config.zip), strict=True)] or [()]
    draws = [*_draws(config, root)] or [()]
    place = root.keys.get("seeds", root.place)
    seeds: list[tuple[Setting, ...]] = [(_seed(place, seed),) for seed in config.seeds or ()]
    for point, row, draw, seed in itertools.product(
        itertools.product(*columns), rows, draws, seeds or [()]
    ):
        yield (*point, *row, *draw, *seed)


def is_excluded(pattern: dict[str, Any], values: dict[str, Any]) -> bool:
    """Whether a run, whose values are given by dotted keys, agrees with a partial assignment.

    A mapping agrees with one that has its keys and more, so that `scheme: {name: asp}`, and
    `scheme.name: asp` too, leave out an asp with whatever options.
    """
    whole = _nested(values)
    return all(_agrees(value, _inner(whole, key)) for key, value in pattern.items())


def _section(root: MapNode, name: str) -> MapNode:
    section = root.items.get(name)
    return section if isinstance(section, MapNode) else MapNode(root.place)


def _settings(section: MapNode, key: str) -> list[Setting]:
    values = section.items[key]
    assert isinstance(values, ListNode)
    return [Setting(key, section.keys[key], node) for node in values.items]


def _seed(place: Place, seed: int) -> Setting:
    return Setting(SEED, place, ScalarNode(place, str(seed), seed, plain=True))


def _draws(config: SweepConfig, root: MapNode) -> Iterator[tuple[Setting, ...]]:
    if config.random is None:
        return
    keys = _section(_section(root, "random"), "keys")
    for number in range(config.random.count):
        draw = []
        for key, distribution in config.random.keys.items():
            # Seeded by a text, Python's generator is the same in every version and on every machine.
            generator = random.Random(f"{config.random.seed}:{number}:{key}")
            node = _drawn(distribution, keys.items[key], generator.random())
            draw.append(Setting(key, keys.keys[key], node))
        yield tuple(draw)


def _drawn(distribution: Distribution, node: Node, part: float) -> Node:
    """The value at a part in [0, 1) of a distribution."""
    if distribution.choice is not None:
        assert isinstance(node, MapNode)
        values = node.items["choice"]
        assert isinstance(values, ListNode)
        return values.items[int(part * len(values.items))]
    if distribution.uniform is not None:
        low, high = distribution.uniform
        value = low * (1 - part) + high * part
    else:
        assert distribution.loguniform is not None
        low, high = distribution.loguniform
        value = math.exp(math.log(low) * (1 - part) + math.log(high) * part)
    value = min(max(float(f"{value:.{_DIGITS}g}"), low), high)
    return ScalarNode(node.place, repr(value), value, plain=True)


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for key in sorted(values, key=lambda key: key.count(".")):
        *above, last = key.split(".")
        section = whole
        for part in above:
            inner = section.get(part)
            section[part] = section = dict(inner) if isinstance(inner, dict) else {}
        section[last] = values[key]
    return whole


def _inner(value: Any, key: str) -> Any:
    for part in key.split("."):
        value = value.get(part, ...) if isinstance(value, dict) else ...
    return value


def _agrees(pattern: Any, value: Any) -> bool:
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(
            _agrees(inner, value.get(key, ...)) for key, inner in pattern.items()
        )
    if isinstance(pattern, bool) or isinstance(value, bool):
        return pattern is value  # 1 is not true
    return bool(pattern == value)
