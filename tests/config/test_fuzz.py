from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from psopt.config import ConfigError, dump_job
from tests.config.support import Bench, Job
from tests.config.test_dump import FULL

fuzz = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
KEYS = st.sampled_from([*Job.model_fields, "name", "lr", "groups", "kwargs", "factory", "<<", "1"])
WORDS = st.sampled_from(
    [
        "no",
        "1",
        "-1",
        "1.5",
        "1e-3",
        "1e999",
        ".inf",
        ".nan",
        "0x1F",
        "~",
        "true",
        "'x'",
        '"\\ud800"',
        '"\\U99999999"',
        "24:00:00",
        "1:30",
        "wasp",
        "bsp",
        "SGD",
        "Adam",
        "StepLR",
        "LBFGS",
        "lenet5",
        "!foo",
        "!!python/name:os.system",
        "&a",
        "*a",
        "<<",
        "[]",
        "{}",
        "a:b",
        "?",
        "-",
        "|",
        ">",
        "%",
        "@",
        "`",
    ]
)
TOKENS = (
    KEYS | WORDS | st.sampled_from([": ", ", ", "{", "}", "[", "]", "\n", "  ", "\t", "#", "---\n"])
)


def attempt(bench: Bench, text: str | bytes, *overrides: str) -> None:
    """Load; anything but a valid job or a `ConfigError` with places fails the test."""
    try:
        job = bench.load(text, *overrides)
    except ConfigError as error:
        found = error
    else:
        assert bench.load(dump_job(job)) == job
        return
    lines = str(found).split("\n")
    assert len(lines) == len(found.problems) > 0
    assert all(line.startswith((f"{bench.path}:", "--set ")) for line in lines)
    assert all(line.isprintable() for line in lines)


@fuzz
@given(st.binary(max_size=60))
@example(b"\xff\xfe")
@example(b"\xef\xbb\xbf")
@example("a: \u2028\x85b: 1\n\u2029c".encode())
def test_bytes(bench: Bench, data: bytes) -> None:
    attempt(bench, data)


@fuzz
@given(st.lists(TOKENS, max_size=25).map("".join))
def test_tokens(bench: Bench, text: str) -> None:
    attempt(bench, text)


@fuzz
@given(
    st.integers(0, len(FULL) - 1),
    st.integers(0, 12),
    st.lists(TOKENS | st.characters(exclude_categories=["Cs"]), max_size=2).map("".join),
)
def test_a_valid_file_with_a_change(bench: Bench, start: int, length: int, instead: str) -> None:
    attempt(bench, FULL[:start] + instead + FULL[start + length :])


@fuzz
@given(st.data())
def test_values_of_any_kind_anywhere(bench: Bench, data: st.DataObject) -> None:
    job: Any = bench.load(FULL).model_dump()
    paths = list(leaves(job))
    path = data.draw(st.sampled_from(paths))
    value = data.draw(WORDS | st.sampled_from(["[1, 2]", "{a: 1}", "''", "-0.0", "1" * 30]))
    attempt(bench, FULL, f"{'.'.join(path)}={value}")


@fuzz
@given(st.text(max_size=20) | st.lists(TOKENS | st.just("="), max_size=8).map("".join))
def test_overrides(bench: Bench, override: str) -> None:
    attempt(bench, FULL, override)


def leaves(node: Any, path: tuple[str, ...] = ()) -> Any:
    items = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    if path:
        yield path
    for key, value in items:
        yield from leaves(value, (*path, str(key)))


@pytest.mark.parametrize("depth", [39, 41, 1000, 20_000])
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "a:\n"])
def test_depth(bench: Bench, depth: int, opening: str) -> None:
    lines = ("a:\n", *(" " * i + "a:\n" for i in range(1, min(depth, 300))))
    attempt(bench, "".join(lines) if opening == "a:\n" else opening * depth)
