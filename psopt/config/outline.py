"""Which keys a section has, found from the types of the schema: the remedy of an unknown key."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from psopt.config.problems import Path
from psopt.config.suggest import nearest, unknown


def unknown_key(model: type[BaseModel], path: Path) -> str:
    """Say that the last part of a path is no key of its section, and which one is meant."""
    key = str(path[-1])
    valid = keys_at(model, path[:-1])
    if len(path) == 1 or nearest(key, valid) is None:  # a key of a section is none of the top level
        elsewhere = [
            f"'{section}.{key}'" if section else f"{key!r} at the top level"
            for section in ("", *_fields(model))
            if section not in path and key in keys_at(model, (section,) if section else ())
        ]
        if elsewhere:
            return f"unknown key {key!r}; did you mean {' or '.join(elsewhere)}?"
    owners = _owners(model, path)
    if owners and nearest(key, valid) is None:
        return f"{unknown('key', key, valid)} ({key!r} belongs to {' and '.join(owners)})"
    return unknown("key", key, valid)


def _owners(model: type[BaseModel], path: Path) -> list[str]:
    """Names of the other members of a union, in a section that has a name, to which a key belongs."""
    found = []
    for section in (path[:-1], path[:-2]):  # the name of the chosen member may end the path
        kinds: list[Any] = [model]
        for part in section:
            kinds = list(_step(kinds, part))
        members = list(_members(kinds))
        if len(members) > 1:
            found += [repr(_labels(m)[0]) for m in members if path[-1] in _fields(m)]
    return found


def keys_at(model: type[BaseModel], path: Path) -> list[str]:
    """Return the keys of the section that a path leads to; labels of union members may be in it."""
    kinds: list[Any] = [model]
    for part in path:
        kinds = list(_step(kinds, part))
    return list(dict.fromkeys(key for kind in _members(kinds) for key in _fields(kind)))


def _step(kinds: list[Any], part: str | int) -> Iterator[Any]:
    members = list(_members(kinds))
    labelled = [kind for kind in members if part in _labels(kind)]
    inside = [child for kind in members for child in _children(kind, part)]
    yield from inside or labelled or members


def _members(kinds: Iterable[Any]) -> Iterator[Any]:
    """Take annotations and unions apart."""
    for kind in kinds:
        origin = get_origin(kind)
        if origin is Annotated:
            yield from _members([get_args(kind)[0]])
        elif origin is Union or origin is types.UnionType:
            yield from _members(get_args(kind))
        else:
            yield kind


def _children(kind: Any, part: str | int) -> list[Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (list, tuple) and isinstance(part, int):
        return [argument for argument in arguments if argument is not Ellipsis][:1]
    if origin is dict and arguments:
        return [arguments[1]]
    fields = _fields(kind)
    return [fields[part].annotation] if part in fields else []


def _labels(kind: Any) -> tuple[Any, ...]:
    """Return the names by which a union may call a member: its discriminator, its class."""
    name = _fields(kind).get("name")
    values = () if name is None else get_args(name.annotation)
    return (*values, getattr(kind, "__name__", None))


def _fields(kind: Any) -> Mapping[Any, FieldInfo]:
    if isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(kind)):
        fields: Mapping[Any, FieldInfo] = getattr(kind, "__pydantic_fields__", {})
        return fields
    return {}
