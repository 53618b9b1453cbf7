from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from psopt.config import job_schema, sweep_schema
from psopt.config.torch_options import OPTIMIZERS, SCHEDULERS
from tests.config.support import Job

GOLDEN = Path(__file__).parent / "golden" / "job_schema.json"


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(job_schema(Job))
    return found


def objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if "properties" in node:
            yield node
        for child in node.values():
            yield from objects(child)
    elif isinstance(node, list):
        for child in node:
            yield from objects(child)


def without_torch(text: str) -> str:
    """The schema without the names that depend on the version of torch."""
    for names in (OPTIMIZERS, SCHEDULERS):
        listed = json.dumps([*names], indent=2).replace("\n", "\n" + " " * 10)
        assert listed in text
        text = text.replace(listed, "[...]")
    return text


def test_golden_file() -> None:
    assert without_torch(job_schema(Job)) == GOLDEN.read_text(encoding="utf-8")


def test_every_key_is_described() -> None:
    for section in objects(schema()):
        assert section["description"], section["title"]
        for key, value in section["properties"].items():
            assert value.get("description"), f"{section['title']}.{key}"


def test_unknown_keys_are_forbidden_but_for_options_of_torch() -> None:
    free = {s["title"] for s in objects(schema()) if s["additionalProperties"] is not False}
    assert free == {"OptimizerConfig", "GroupConfig", "SchedulerConfig"}


def test_scheme_is_chosen_by_name() -> None:
    scheme = schema()["properties"]["scheme"]
    assert scheme["discriminator"]["mapping"] == {"wasp": "#/$defs/Wasp", "bsp": "#/$defs/Bsp"}
    assert schema()["required"] == ["name", "model", "scheme"]


def test_names_of_torch_are_listed() -> None:
    names = schema()["$defs"]["OptimizerConfig"]["properties"]["name"]["enum"]
    assert {"SGD", "AdamW"} <= set(names)
    assert not {"LBFGS", "SparseAdam", "Optimizer"} & set(names)


def test_of_sweeps() -> None:
    found = json.loads(sweep_schema())
    for section in objects(found):
        assert section["additionalProperties"] is False
        for key, value in section["properties"].items():
            assert value.get("description"), f"{section['title']}.{key}"
    kinds = {each["type"] for each in found["properties"]["seeds"]["anyOf"]}
    assert kinds == {"array", "integer", "null"}
    assert found["required"] == ["name", "base"]
