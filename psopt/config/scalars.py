"""How a plain YAML scalar is read: the YAML 1.2 core schema, shared by the loader and the dumper.

YAML 1.1, which PyYAML follows by default, reads `no` as false, `24:00:00` as 86400 and `1e-3` as
text. Here only the words and number forms below have a meaning; all other plain scalars are text.
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

NULL = re.compile(r"null|Null|NULL|~|")
BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
# Python refuses to read whole numbers of some thousand digits; no count or size has that many.
_MOST_DIGITS = 400


def resolve(text: str) -> Scalar:
    """Return the value of a plain (unquoted) scalar; a number beyond all floats is infinite."""
    if NULL.fullmatch(text):
        return None
    if BOOL.fullmatch(text):
        return text.lower() == "true"
    if INT.fullmatch(text):
        return _integer(text)
    if FLOAT.fullmatch(text):
        return float(text.replace(".", "") if text[-1] in "fFnN" else text)
    return text


def _integer(text: str) -> int | float:
    if len(text) > _MOST_DIGITS:
        return math.inf
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text, base)
