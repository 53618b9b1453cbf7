"""The strict loader: a job file and its overrides become a configuration, or all that is wrong.

The file's values reach the schema as JSON in pydantic's strict mode: nothing is converted but what
JSON cannot tell apart (whole numbers and floats, lists and tuples).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from psopt.config import wording
from psopt.config.nodes import (
    MapNode,
    Node,
    ScalarNode,
    compose,
    locate,
    scalars,
    texts_of,
    value_of,
)
from psopt.config.outline import unknown_key
from psopt.config.overrides import Override, apply, parse_overrides
from psopt.config.problems import ConfigError, Located, Place, Problem, dotted
from psopt.config.wording import Fault
from psopt.reading import open_regular

ModelT = TypeVar("ModelT", bound=BaseModel)
Check = Callable[[Any], Iterable[Problem]]
MOST_BYTES = 2**20
# Errors that a plain scalar read as text may not have: `name: 123` is the text "123".
_NAN = "must be a number that a job can use, not nan"
_TEXT_WANTED = ("string_type", "literal_error", "enum")


def load_job(
    path: Path,
    model: type[ModelT],
    overrides: Sequence[str] = (),
    checks: Sequence[Check] = (),
) -> ModelT:
    """Load a job file.

    Args:
        path: a YAML file of at most 1 MiB, UTF-8.
        model: `JobConfig` with the union of the schemes, discriminated by `name`.
        overrides: changes "key.key=value", as given to `--set`, made in order.
        checks: further checks of a valid configuration; they return problems.

    Returns:
        The configuration, complete with defaults.

    Raises:
        ConfigError: all faults of the file, the overrides and the checks, with their places.
    """
    changes, problems = parse_overrides(overrides)
    try:
        root, faults = read_tree(path)
    except ConfigError as error:
        raise ConfigError([*error.problems, *problems]) from None
    return build(root, model, changes, checks, [*problems, *faults])


def build(
    root: MapNode,
    model: type[ModelT],
    changes: Iterable[Override] = (),
    checks: Iterable[Check] = (),
    problems: Iterable[Located] = (),
) -> ModelT:
    """Make the changes in a tree, which is then no longer the file's, and validate it.

    Args:
        root: the tree of a file.
        model: what it is to be.
        changes: made in order.
        checks: as for `load_job`.
        problems: what is known to be wrong already.

    Raises:
        ConfigError: all faults, those known before included.
    """
    problems = [*problems]
    problems += [fault for change in changes if (fault := apply(root, change))]
    config, faults = _validate(root, model)
    problems += faults
    problems += _not_numbers(root, {problem.place for problem in problems})
    if config is not None:
        problems += [_locate_problem(root, fault) for check in checks for fault in check(config)]
    if config is None or problems:
        raise ConfigError(problems)
    return config


def read_texts(path: Path) -> dict[str, Any]:
    """A job file of any version of psopt as nested dicts and lists of text, none of it looked up.

    Raises:
        ConfigError: it is no file that `load_job` could begin to read, with the places.
    """
    root, faults = read_tree(path)
    if faults:
        raise ConfigError(faults)
    return {key: texts_of(node) for key, node in root.items.items()}


def read_tree(path: Path, kind: str = "job") -> tuple[MapNode, list[Located]]:
    """A file as a tree, and what is wrong with it that does not prevent one.

    Args:
        path: a YAML file of at most 1 MiB, UTF-8.
        kind: of file, for messages; every kind has at least a name.

    Raises:
        ConfigError: there is no tree.
    """
    root, faults = compose(_text(path, kind), str(path))
    start = Place(str(path), 1, 1)
    if root is None:
        message = f"the file is empty: a {kind} has at least a name"
        raise ConfigError([*faults, Located(start, message)])
    if not isinstance(root, MapNode):
        message = f"a {kind} file is {wording.MAPPING}, not {_shown(root)}"
        raise ConfigError([*faults, Located(root.place, message)])
    return root, faults


def _text(path: Path, kind: str) -> str:
    try:
        with open_regular(path) as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError([Located(Place(str(path)), f"cannot be read: {reason}")]) from None
    if len(data) > MOST_BYTES:
        message = f"the file is larger than {MOST_BYTES} bytes: is it a {kind} file?"
        raise ConfigError([Located(Place(str(path)), message)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8-sig")
        place = Place(str(path), before.count("\n") + 1, len(before) - before.rfind("\n"))
        message = f"byte 0x{error.object[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise ConfigError([Located(place, message)]) from None


def _validate(root: MapNode, model: type[ModelT]) -> tuple[ModelT | None, list[Located]]:
    """Validate until nothing new is learnt: as text what must be text, and without unknown keys."""
    located: dict[Located, None] = {}
    while True:
        try:
            text = json.dumps(value_of(root))
            return model.model_validate_json(text, strict=True), list(located)
        except ValidationError as error:
            faults = list(wording.faults(error))
        if not _read_as_text(root, faults):
            located |= dict.fromkeys(_located(root, model, faults))
            if not _drop_unknown(root, faults):
                return None, list(located)


def _read_as_text(root: MapNode, faults: Iterable[Fault]) -> bool:
    changed = False
    for fault in faults:
        node = locate(root, fault.path)[1]
        if fault.kind in _TEXT_WANTED and isinstance(node, ScalarNode) and node.plain:
            if node.value is None or isinstance(node.value, str):
                continue
            node.value = node.text
            changed = True
    return changed


def _drop_unknown(root: MapNode, faults: Iterable[Fault]) -> bool:
    """Take out the keys at fault, so that the checks of whole sections can run on the rest."""
    dropped = False
    for fault in faults:
        found = locate(root, fault.path)[0]
        if fault.at_key and found and found[-1] == fault.path[-1]:
            parent = locate(root, found[:-1])[1]
            if isinstance(parent, MapNode):
                del parent.items[str(found[-1])]
                dropped = True
    return dropped


def _located(root: MapNode, model: type[ModelT], faults: Iterable[Fault]) -> Iterable[Located]:
    joined: dict[Any, list[Fault]] = {}
    for fault in faults:
        # Members of a union each say what they expect of the same value: one line for all.
        key = locate(root, fault.path)[0] if fault.expected else fault
        joined.setdefault(key, []).append(fault)
    for group in joined.values():
        fault = group[0]
        message = fault.message
        if fault.unknown_key:
            message = unknown_key(model, fault.path)
        elif fault.expected and _is_nan(node := locate(root, fault.path)[1]):
            message = _NAN
        elif fault.expected:
            text = node.text if isinstance(node, ScalarNode) else None
            message = wording.must_be([f.expected for f in group], _shown(node), text)
        yield _locate_problem(root, Problem(fault.path, message, fault.at_key))


def _locate_problem(root: MapNode, problem: Problem) -> Located:
    found, node, key_place = locate(root, problem.path)
    exists = bool(found) and found[-1] == problem.path[-1]
    at_key = problem.at_key and exists
    section = dotted(found[:-1] if at_key else found)
    message = f"{section}: {problem.message}" if section else problem.message
    return Located(key_place if at_key else node.place, message)


def _not_numbers(root: MapNode, known: set[Place]) -> list[Located]:
    """Refuse nan wherever it stands: a configuration with one would not equal itself."""
    return [
        Located(node.place, _NAN)
        for node in scalars(root)
        if _is_nan(node) and node.place not in known
    ]


def _is_nan(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value != node.value


def _shown(node: Node) -> str:
    if isinstance(node, ScalarNode) and not isinstance(node.value, str):
        return node.text[:60] or "null"
    return wording.shown(value_of(node))
