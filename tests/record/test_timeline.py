from __future__ import annotations

import json
from pathlib import Path

import pytest

from psopt.record import Timeline, read_timeline


def spans(path: Path) -> list[tuple[int, str, float, float]]:
    return [
        (event["tid"], event["name"], event["ts"], event["dur"])
        for event in read_timeline(path)
        if event["ph"] == "X"
    ]


def test_a_closed_file_is_json(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    with Timeline(path, 10) as timeline:
        timeline.name(1, 'worker 0 on "node"')
        timeline.name(1, 'worker 0 on "node"')
        timeline.add(1, "compute", 0.5, 0.75)
    events = json.loads(path.read_text())
    assert events == read_timeline(path)
    assert [event["ph"] for event in events] == ["M", "M", "X"]
    assert events[0]["args"] == {"name": 'worker 0 on "node"'}
    assert spans(path) == [(1, "compute", 500_000.0, 250_000.0)]


def test_without_events_it_is_json_too(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    Timeline(path, 10).close()
    assert json.loads(path.read_text()) == []
    with Timeline(path, 10) as timeline:
        timeline.add(0, "wait", 0.0, 1.0)
    assert len(json.loads(path.read_text())) == 1


@pytest.mark.parametrize("cut", range(60))
def test_killed_at_any_byte_it_is_readable_and_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "timeline.json"
    with Timeline(path, 10) as timeline:
        for index in range(3):
            timeline.add(index, "wait", index, index + 1)
    whole = spans(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - cut])
    left = spans(path)
    assert left == whole[: len(left)]
    assert len(left) >= 2
    with Timeline(path, 10) as timeline:
        timeline.add(9, "send", 9, 10)
    json.loads(path.read_text())
    assert spans(path) == [*left, (9, "send", 9e6, 1e6)]


def test_stops_at_the_limit_and_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    for _attempt in range(2):
        with Timeline(path, 3) as timeline:
            timeline.name(0, "coordinator")
            for index in range(5):
                timeline.add(0, "wait", index, index + 1)
    events = json.loads(path.read_text())
    assert len(spans(path)) == 3
    assert [event["name"] for event in events].count("truncated") == 1
    assert [event["name"] for event in events].count("thread_name") == 1


def test_limit_zero_makes_no_file(tmp_path: Path) -> None:
    with Timeline(tmp_path / "timeline.json", 0) as timeline:
        timeline.name(0, "coordinator")
        timeline.add(0, "wait", 0.0, 1.0)
        timeline.flush()
    assert list(tmp_path.iterdir()) == []


def test_closing_twice_does_no_harm(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path / "timeline.json", 1)
    timeline.close()
    timeline.close()
    assert json.loads((tmp_path / "timeline.json").read_text()) == []


def test_damage_in_the_middle_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text('[\n{"ph": \n{"ph": "X"}\n]\n')
    with pytest.raises(ValueError, match=r"timeline\.json:2: not a trace event"):
        read_timeline(path)


def full(timeline: Timeline) -> None:
    """Let the disk be full from now on."""
    assert timeline._stream is not None
    timeline._stream.close()
    timeline._stream = open("/dev/full", "wb")  # noqa: PTH123, SIM115 - as Path opens no device


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("moment", ["add", "flush", "close"])
def test_a_full_disk_is_told_once_and_ends_the_timeline(tmp_path: Path, moment: str) -> None:
    path, said = tmp_path / "timeline.json", list[str]()
    timeline = Timeline(path, 100_000, said.append)
    timeline.add(0, "wait", 0, 1)
    timeline.flush()
    full(timeline)
    for index in range(1000 if moment == "add" else 1):
        timeline.add(0, "wait", index, index + 1)
    if moment == "flush":
        timeline.flush()
    if moment == "close":
        assert said == []
        timeline.close()
    (text,) = said
    assert text.startswith(f"{path}: cannot be written: No space left on device")
    assert text.endswith("the timeline goes no further")
    timeline.add(0, "wait", 0, 1)
    timeline.flush()
    timeline.close()
    assert len(said) == 1
    assert spans(path) == [(0, "wait", 0.0, 1e6)]


def test_a_file_that_cannot_be_continued_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "timeline.json").write_text('[\n{"ph": \n{"ph": "X"}\n]\n')
    (tmp_path / "folder").mkdir()
    for name in ("timeline.json", "folder"):
        with Timeline(tmp_path / name, 10, said.append) as timeline:
            timeline.add(0, "wait", 0, 1)
    assert "timeline.json:2: not a trace event" in said[0]
    assert "folder: cannot be written: Is a directory" in said[1]
    assert len(said) == 2
