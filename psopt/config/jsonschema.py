"""The JSON schemas of job and sweep files, for editors and other tools."""

from __future__ import annotations

import inspect
import json
from typing import Any

from psopt.config.schema import JobConfig
from psopt.config.section import Section
from psopt.config.sweep import SweepConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_schema(model: type[JobConfig[Any]]) -> str:
    """Return the JSON schema of a job as text: the same text for the same schemes and torch."""
    return _text(model, JobConfig)


def sweep_schema() -> str:
    """Return the JSON schema of a sweep as text; what its dotted keys may be, the job's schema says."""
    return _text(SweepConfig, SweepConfig)


def _text(model: type[Section], described: type[Section]) -> str:
    head = {"$schema": DIALECT, "description": inspect.getdoc(described)}
    schema = head | model.model_json_schema(mode="validation")
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
