from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from psopt.record import MetricsError, MetricsWriter, RecordError, read_metrics


def rows(steps: int) -> list[dict[str, Any]]:
    return [{"kind": "step", "step": step, "loss": 1.0 / step} for step in range(1, steps + 1)]


def write(path: Path, steps: int) -> None:
    with MetricsWriter(path) as writer:
        for row in rows(steps):
            writer.write(row)


def test_round_trip_and_append(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, 3)
    with MetricsWriter(path) as writer:
        writer.write({"kind": "evaluation", "step": 3, "test_loss": math.nan})
    assert read_metrics(path) == [*rows(3), {"kind": "evaluation", "step": 3, "test_loss": None}]


def test_flush_makes_rows_visible(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path) as writer:
        writer.write({"step": 1})
        writer.flush()
        assert read_metrics(path) == [{"step": 1}]


@pytest.mark.parametrize("torn", [b'{"kind": "st', b"{", b"\0\0\0\0", b'"text'])
def test_torn_last_line(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, 2)
    with path.open("ab") as stream:
        stream.write(torn)
    assert read_metrics(path) == rows(2)
    with MetricsWriter(path) as writer:
        writer.write({"step": 3})
    assert read_metrics(path) == [*rows(2), {"step": 3}]


def test_last_line_that_lacks_only_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}')
    with MetricsWriter(path) as writer:
        writer.write({"step": 2})
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize("line", ["{", "[1]", "3"])
def test_damage_in_the_middle_names_file_and_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 2}}\n')
    with pytest.raises(MetricsError, match=r"metrics\.jsonl:2: not"):
        read_metrics(path)


def test_truncate_drops_later_rows_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, 5)
    with path.open("ab") as stream:
        stream.write(b'{"kind": "evaluation", "ste')
    with MetricsWriter(path) as writer:
        assert writer.rows == 5
        writer.write({"kind": "refused", "step": 5})
        writer.write({"kind": "refused", "step": 5})
        writer.truncate(6)
        assert writer.rows == 6
        writer.write({"step": 6})
        assert writer.rows == 7
    assert read_metrics(path) == [*rows(5), {"kind": "refused", "step": 5}, {"step": 6}]
    assert list(tmp_path.iterdir()) == [path]


def test_truncate_to_more_rows_than_there_are_keeps_all(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, 2)
    with MetricsWriter(path) as writer:
        writer.truncate(9)
        assert writer.rows == 2
    assert read_metrics(path) == rows(2)


@pytest.mark.parametrize(("end", "count"), [(b"", 2), (b'{"step": 3}', 3), (b'{"st', 2)])
def test_rows_that_are_there(tmp_path: Path, end: bytes, count: int) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, 2)
    with path.open("ab") as stream:
        stream.write(end)
    with MetricsWriter(path) as writer:
        assert writer.rows == count
    assert len(read_metrics(path)) == count


def test_failure_of_truncate_keeps_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{\n{"step": 2}\n')
    before = path.read_bytes()
    with MetricsWriter(path) as writer:
        with pytest.raises(MetricsError, match="remove this line"):
            writer.truncate(1)
        writer.write({"step": 3})
    assert path.read_bytes() == before + b'{"step": 3}\n'


def test_empty_and_missing(tmp_path: Path) -> None:
    MetricsWriter(tmp_path / "m").close()
    assert read_metrics(tmp_path / "m") == []
    with pytest.raises(FileNotFoundError):
        read_metrics(tmp_path / "missing")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("moment", ["write", "flush", "close"])
def test_a_full_disk_names_the_file(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path)
    writer._stream.close()
    writer._stream = open("/dev/full", "ab")  # noqa: PTH123, SIM115
    last = {"write": lambda: writer.write({"text": "x" * 100_000})}.get(moment)
    writer.write({"step": 1})
    with pytest.raises(RecordError, match=r"metrics\.jsonl: cannot be written: No space left"):
        (last or getattr(writer, moment))()
    if moment != "close":
        with pytest.raises(RecordError):
            writer.close()
    writer.close()


def test_a_directory_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be written: Is a directory"):
        MetricsWriter(tmp_path)
