"""The JSON schema of a job file, for editors and other tools."""

from __future__ import annotations

import inspect
import json
from typing import Any

from psopt.config.schema import JobConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_schema(model: type[JobConfig[Any]]) -> str:
    """Return the JSON schema of a job as text: the same text for the same schemes and torch."""
    head = {"$schema": DIALECT, "description": inspect.getdoc(JobConfig)}
    schema = head | model.model_json_schema(mode="validation")
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
