"""What a validation error means, in the words of a job file instead of Python's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from psopt.config.problems import Path, SectionError
from psopt.config.suggest import nearest, unknown

MAPPING = "a mapping of keys"
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of reasonable size",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": MAPPING,
    "mapping_type": MAPPING,
    "model_type": MAPPING,
    "model_attributes_type": MAPPING,
    "dataclass_type": MAPPING,
    "none_required": "null",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "one of {expected}",
    "enum": "one of {expected}",
    "too_short": "a list of at least {min_length} items",
    "too_long": "a list of at most {max_length} items",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
}
_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault that a validator found.

    Attributes:
        path: where, with labels of union members among the keys.
        kind: pydantic's name of the error, or "problem" for one of a `SectionError`.
        expected: what the value must be; faults at one value are then joined by "or".
        message: a complete message instead; empty where `expected` says it.
        at_key: the fault is the key, not its value.
    """

    path: Path
    kind: str
    expected: str = ""
    message: str = ""
    at_key: bool = False

    @property
    def unknown_key(self) -> bool:
        """Whether the key is one that the section does not have."""
        return self.kind in _UNKNOWN_KEY


def faults(error: ValidationError, prefix: Path = ()) -> Iterator[Fault]:
    """List the faults in an error of pydantic, those inside a `SectionError` one by one."""
    for detail in error.errors(include_url=False):
        path: Path = (*prefix, *detail["loc"])
        context: Mapping[str, Any] = detail.get("ctx", {})
        cause = context.get("error")
        if isinstance(cause, SectionError):
            for problem in cause.problems:
                whole = (*path, *problem.path)
                yield Fault(whole, "problem", message=problem.message, at_key=problem.at_key)
            if cause.fields is not None:
                yield from faults(cause.fields, path)
        else:
            message = str(cause) if cause is not None else detail["msg"]
            yield _fault(path, detail["type"], context, message)


def _fault(path: Path, kind: str, context: Mapping[str, Any], message: str) -> Fault:
    if path and path[-1] == "[key]":
        if kind in _EXPECTED:
            message = f"the key {path[-2]!r} must be {_expected(kind, context)}"
        return Fault(path[:-1], kind, message=message, at_key=True)
    if kind in _UNKNOWN_KEY:
        return Fault(path, kind, at_key=True)
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return Fault(path, kind, message=_missing(path))
    if kind == "union_tag_invalid":
        valid = _quoted(context["expected_tags"])
        what = unknown(str(path[-1]) if path else "name", str(context["tag"]), valid)
        return Fault((*path, _quoted(context["discriminator"])[0]), kind, message=what)
    if kind == "union_tag_not_found":
        key = _quoted(context["discriminator"])[0]
        return Fault(path, kind, message=f"required key {key!r} is missing, or is not text")
    if kind in _EXPECTED:
        return Fault(path, kind, expected=_expected(kind, context))
    return Fault(path, kind, message=message)


def _expected(kind: str, context: Mapping[str, Any]) -> str:
    bounds = {k: f"{v:.15g}" if isinstance(v, float) else v for k, v in context.items()}
    return _EXPECTED[kind].format_map(bounds)


def _missing(path: Path) -> str:
    last = path[-1] if path else ""
    if isinstance(last, int):
        return f"the list is too short: item {last + 1} is missing"
    return f"required key {last!r} is missing"


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def must_be(expected: list[str], shown: str, text: str | None) -> str:
    """`must be a number or one of 'a', 'b', not ...`, with the nearest name where one is meant."""
    wanted = " or ".join(dict.fromkeys(expected))
    message = f"must be {wanted}, not {shown}"
    if text is not None:
        names = [name for item in expected if item.startswith("one of") for name in _quoted(item)]
        meant = nearest(text, names)
        message += f"; did you mean {meant!r}?" if meant else ""
    if expected == [MAPPING] and shown == "null":
        message += "; leave the key out to keep the defaults"
    return message


def shown(value: Any) -> str:
    """A value as an error shows it: short, with its kind where that is the point."""
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 60 else f"the text {value[:57]!r}..."
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return str(value)
