from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from psopt.config import canonical_json, dump_job
from tests.config.support import MINIMAL, Bench, Job

GOLDEN = Path(__file__).parent / "golden" / "job.yaml"
FULL = """\
name: "1e-3"
seed: 17
model: {name: mlp, kwargs: {hidden: [64, 32], dropout: 0.1}}
scheme: {name: wasp, period: 8, weights: [1, 1e-3], label: no, bound: 2}
optimizer:
  name: AdamW
  lr: 1e-5
  betas: [0.9, 0.95]
  groups: [{match: "*.bias", weight_decay: 0}]
scheduler: {name: OneCycleLR, max_lr: 1e-3, total_steps: 100, per: epoch}
data: {path: "it's (1).h5", cache_bytes: 512 MiB, normalise: false}
stop: {seconds: 24:00:00, test_accuracy: 0.9}
evaluate: {every_steps: 10}
cluster: {workers: 4, stragglers: {3: 2, 1: 1.5}}
"""

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [
        "no",
        "yes",
        "on",
        "123",
        "0x1F",
        "0o17",
        "1e-3",
        "1.",
        ".5",
        "null",
        "~",
        "true",
        "24:00:00",
        "1:30",
        ".inf",
        ".nan",
        "<<",
        "",
        "=",
        "-",
        "?",
        ":",
        "#",
        "&",
        "*",
        "!",
        "|",
        ">",
        "'",
        '"',
        "%",
        "@",
        "`",
        "[]",
        "{}",
        "01",
        "1_000",
        "2024-01-01",
        "---",
        "...",
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


def same(bench: Bench, job: Any) -> Any:
    again = bench.load(dump_job(job))
    assert again == job
    assert repr(again) == repr(job)
    return again


@pytest.mark.parametrize("job", [MINIMAL, FULL])
def test_written_and_read_again(bench: Bench, job: str) -> None:
    loaded = bench.load(job)
    assert dump_job(same(bench, loaded)) == dump_job(loaded)


def test_golden_file(bench: Bench) -> None:
    assert dump_job(bench.load(FULL)) == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["no", "123", "1e-3", "0x1F", "true", "null", "1.10", "0o7", "y"])
def test_text_that_looks_like_something_else_is_quoted(bench: Bench, name: str) -> None:
    job = bench.load(MINIMAL.replace("digits", f"'{name}'"))
    assert dump_job(job).startswith(f"name: '{name}'\n" if name != "y" else "name: ")
    assert yaml.safe_load(dump_job(job))["name"] == name
    assert same(bench, job).name == name


@pytest.mark.parametrize(
    "number", [1e-3, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, 1e16, 1 / 3, 1.0]
)
def test_floats_keep_every_digit(bench: Bench, number: float) -> None:
    job = bench.load(MINIMAL + f"stop: {{test_loss: {number!r}}}\n")
    assert same(bench, job).stop.test_loss == number


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(kwargs=st.dictionaries(text, json_values, max_size=4))
def test_any_value_is_written_and_read_again(bench: Bench, kwargs: dict[str, Any]) -> None:
    base = bench.load().model_dump()
    job = Job.model_validate(base | {"model": {"name": "mlp", "kwargs": kwargs}})
    same(bench, job)
    assert canonical_json(job) == canonical_json(bench.load(dump_job(job)))


def test_canonical_json(bench: Bench) -> None:
    job = bench.load(FULL)
    text = canonical_json(job)
    other = bench.load("\n".join(reversed(MINIMAL.splitlines())))
    assert canonical_json(other) == canonical_json(bench.load())
    assert canonical_json(other) != text
    values = json.loads(text)
    assert list(values) == sorted(values)
    assert values["optimizer"]["betas"] == [0.9, 0.95]
    assert values["cluster"]["stragglers"] == {"1": 1.5, "3": 2.0}


def test_canonical_json_of_numbers_that_json_lacks() -> None:
    base = {"name": "x", "scheme": {"name": "bsp"}, "optimizer": {"name": "SGD", "lr": 0.1}}
    kwargs = {"a": math.inf, "b": -math.inf, "c": math.nan}
    job = Job.model_validate(base | {"model": {"name": "mlp", "kwargs": kwargs}})
    assert json.loads(canonical_json(job))["model"]["kwargs"] == {
        "a": ".inf",
        "b": "-.inf",
        "c": ".nan",
    }
