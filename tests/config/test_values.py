from __future__ import annotations

import re

import pytest

from psopt.config.values import byte_count, duration, import_path, job_name
from tests.config.support import MINIMAL, Bench


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24:00:00", 86400.0),
        ("00:00:01", 1.0),
        ("100:00:00", 360000.0),
        ("1-00:00:00", 86400.0),
        ("2-03:04:05", 2 * 86400 + 3 * 3600 + 4 * 60 + 5.0),
        ("90s", 90.0),
        ("1.5s", 1.5),
        ("15m", 900.0),
        ("2h", 7200.0),
        ("0.5h", 1800.0),
        ("1d", 86400.0),
        ("1h30m", 5400.0),
        ("1d2h3m4s", 86400 + 7200 + 180 + 4.0),
    ],
)
def test_duration(text: str, seconds: float) -> None:
    assert duration(text) == seconds
    assert type(duration(text)) is float


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("1:30", "ambiguous"),
        ("90:00", "ambiguous"),
        ("1:60:00", "minutes go from 0 to 59"),
        ("1:00:75", "seconds go from 0 to 59"),
        ("1-24:00:00", "hours go from 0 to 23"),
        ("1:2:3", "HH:MM:SS"),
        ("-1:00:00", "HH:MM:SS"),
        ("1-00", "HH:MM:SS"),
        ("1-00:30", "HH:MM:SS"),
        ("90", '"90s"'),
        ("", '"90s"'),
        ("s", '"90s"'),
        ("30m1h", '"90s"'),
        ("90 s", '"90s"'),
        ("90S", '"90s"'),
        ("1.s", '"90s"'),
        ("5 minutes", '"90s"'),
        ("24:00:00\n", "HH:MM:SS"),
        ("\u0662\u0664:\u0660\u0660:\u0660\u0660", "HH:MM:SS"),
        ("9" * 400 + "d", "longer than"),
    ],
)
def test_not_a_duration(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=re.escape(part)):
        duration(text)


def test_bool_is_not_a_duration() -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration(True)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("24:00:00", 86400.0),
        ("'24:00:00'", 86400.0),
        ("90", 90.0),
        ("1e3", 1000.0),
        ("90m", 5400.0),
    ],
)
def test_duration_in_a_file(bench: Bench, written: str, seconds: float) -> None:
    found = bench.load(MINIMAL + f"stop: {{seconds: {written}}}\n").stop.seconds
    assert found == seconds
    assert type(found) is float


@pytest.mark.parametrize(
    "written", ["0", "-1", "0s", ".inf", ".nan", "true", "[1]", "'90'", "1:30"]
)
def test_bad_duration_in_a_file(bench: Bench, written: str) -> None:
    assert bench.error(MINIMAL + f"stop: {{seconds: {written}}}\n").startswith(
        "5:17: stop.seconds: "
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512 MiB", 2**29),
        ("2GiB", 2**31),
        ("2GB", 2 * 10**9),
        ("1.5KiB", 1536),
        ("7B", 7),
        ("1kB", 1000),
    ],
)
def test_byte_count(text: str, size: int) -> None:
    assert byte_count(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "2 gib", "2 GiBs", "-1B", "2  GiB", "1e3B", "2"])
def test_not_a_byte_count(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        byte_count(text)


@pytest.mark.parametrize(
    "name", ["no", "a", "9", "wasp-8.1_b+c", "x" * 64, "hetjob", "1e-3", "null"]
)
def test_job_name(name: str) -> None:
    assert job_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a'b",
        'a"b',
        "a\nb",
        "a\n",
        "a|b",
        "a/b",
        "..",
        ".a",
        "-a",
        "_a",
        "+a",
        "é",
        "a$b",
        "a`b",
        "a;b",
        "a*b",
        "a\\b",
        "a\tb",
        "x" * 65,
        "a\x00b",
        "a%b",
    ],
)
def test_not_a_job_name(name: str) -> None:
    with pytest.raises(ValueError, match="use 1 to 64 letters, digits"):
        job_name(name)


@pytest.mark.parametrize("name", ["a-hetjob", "a-hetjob-1", "a-HetJob"])
def test_name_that_slurm_reserves(name: str) -> None:
    with pytest.raises(ValueError, match="Slurm reserves '-hetjob'"):
        job_name(name)


@pytest.mark.parametrize("path", ["a:b", "pkg.mod:attr", "pkg.mod:Class.make", "_a.b1:c_d"])
def test_import_path(path: str) -> None:
    assert import_path(path) == path


@pytest.mark.parametrize(
    "path", ["", "a", "a.b", "a:", ":b", "a b:c", "a:b:c", ".a:b", "a.:b", "1a:b", "a:b\n"]
)
def test_not_an_import_path(path: str) -> None:
    with pytest.raises(ValueError, match=re.escape("write 'package.module:attribute'")):
        import_path(path)
