from __future__ import annotations

import math

import pytest

from psopt.config.scalars import resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E-3", 0.001),
        ("5e9", 5e9),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("+.5", 0.5),
        ("-0.0", -0.0),
        ("1.5e+3", 1500.0),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("+.INF", math.inf),
        ("1e999", math.inf),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("017", 17),
        ("0x1F", 31),
        ("0o17", 15),
        ("9" * 5000, math.inf),
        ("0x" + "f" * 5000, math.inf),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_meaning(text: str, value: object) -> None:
    result = resolve(text)
    assert result == value
    assert type(result) is type(value)


def test_nan() -> None:
    result = resolve(".nan")
    assert isinstance(result, float)
    assert math.isnan(result)


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "No",
        "NO",
        "yes",
        "on",
        "off",
        "y",
        "n",
        "24:00:00",
        "1:30",
        "190:20:30",
        "2024-01-01",
        "1_000",
        "1_0.5",
        "0b11",
        "0x",
        "0o8",
        "-0x1",
        "nan",
        "inf",
        "e3",
        "1e",
        "1e-3x",
        ".",
        "+",
        "-",
        ".e3",
        "tRUE",
        "nULL",
        "1.2.3",
        "½",
        "١٢",
        "<<",
        "=",
    ],
)
def test_text(text: str) -> None:
    assert resolve(text) == text
