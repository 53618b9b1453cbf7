"""What every section of a job file has in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

STRICT = ConfigDict(extra="forbid")
"""For a scheme that is a pydantic dataclass: `@dataclass(frozen=True, config=STRICT)`."""


class Section(BaseModel):
    """Base of all sections: immutable; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def only_one(values: Any, first: str, second: str) -> Any:
    """Let `second`, where it is given and `first` is not, replace the default of `first`."""
    if isinstance(values, dict) and values.get(second) is not None and first not in values:
        return {**values, first: None}
    return values
