"""A configuration as text: YAML that reads back equal, and canonical JSON."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml
from pydantic import BaseModel

from psopt.config import scalars

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
    return json.dumps(_json_values(value), sort_keys=True, allow_nan=False)


def _json_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _json_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    return value
