"""A configuration as text: YAML that reads back equal, and canonical JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from psopt.config import scalars
from psopt.config.problems import one_line

_NO_FOLDING = 2**31


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper; text is quoted where the loader or YAML 1.1 would read something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def text(self, value: str) -> yaml.ScalarNode:
        """Write text; with escapes where it holds line breaks or other unprintable characters."""
        style = None if value.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _Dumper.text)

for _tag, _pattern in (
    ("null", scalars.NULL),
    ("bool", scalars.BOOL),
    ("int", scalars.INT),
    ("float", scalars.FLOAT),
):
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern.pattern})\Z"), None
    )


def dump_job(config: BaseModel) -> str:
    """Write a configuration as YAML text that `load_job` reads back equal, types included."""
    return yaml.dump(
        config.model_dump(mode="python"),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=_NO_FOLDING,
    )


def canonical_json(config: BaseModel) -> str:
    """Write a configuration as JSON with sorted keys: equal configurations give equal text.

    Numbers that JSON lacks are the texts ".inf", "-.inf" and ".nan".
    """
    return value_json(config.model_dump(mode="python"))


def value_json(value: Any) -> str:
    """The same of one plain value of a configuration."""
    return json.dumps(json_values(value), sort_keys=True, allow_nan=False)


def json_values(value: Any) -> Any:
    """A plain value as JSON has it: lists for tuples, texts for numbers that are not finite."""
    if isinstance(value, dict):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    return value


def flow_text(value: Any) -> str:
    """One value in a line, as people write it in YAML: `0.1`, `wasp`, `{name: wasp, alpha: 0.5}`."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{one_line(str(key))}: {flow_text(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return one_line(str(value))


def short_text(value: Any) -> str:
    """The same, but what is nothing but a name is that name: `wasp` for `{name: wasp}`."""
    return flow_text(value["name"] if isinstance(value, dict) and [*value] == ["name"] else value)


def assignment_text(assignment: Mapping[str, Any]) -> str:
    """Dotted keys and their values in a line: `optimizer.lr=0.1 seed=2`."""
    settings = [f"{one_line(key)}={short_text(value)}" for key, value in assignment.items()]
    return " ".join(settings) or "(base)"
