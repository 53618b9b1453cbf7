"""The last words of a run are found, in order, and followed as they come."""

from __future__ import annotations

from pathlib import Path

import pytest

from psopt.record import BatchFiles, NotARun, Words, logs_of


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    BatchFiles(tmp_path).directory.mkdir()
    return BatchFiles(tmp_path).directory


def test_whose_log(tmp_path: Path, batch: Path) -> None:
    assert logs_of(tmp_path) == []
    for path in (tmp_path / "log.txt", tmp_path / "output.log"):
        path.touch()
        assert logs_of(tmp_path) == [path]
    for name in ("100.log", "9.log", "99_10.log", "99_9.log", "job.sh"):
        (batch / name).touch()
    assert [path.name for path in logs_of(tmp_path)] == [
        *("9.log", "99_9.log", "99_10.log", "100.log")
    ]


@pytest.mark.parametrize("lines", [0, 1, 2, 3, 4, 9])
def test_last_lines_of_several_logs(tmp_path: Path, batch: Path, lines: int) -> None:
    (batch / "7.log").write_text("a\n\nb\n")
    (batch / "12.log").write_text("c\nd\nhalf")
    expected = ["a", "", "b", "c", "d"]
    words = Words(tmp_path)
    assert words.last(lines) == (expected[-lines:] if lines else [])
    assert words.more() == []
    assert words.more(whole=False) == ["half"]


@pytest.mark.parametrize("size", [10, 2**16 - 1, 2**16, 2**16 + 1, 10**6])
def test_lines_of_any_length(tmp_path: Path, size: int) -> None:
    lines = ["é" * size, "x" * size, ""]
    (tmp_path / "log.txt").write_text("\n".join([*lines, ""]))
    for count in (1, 2, 3):
        assert Words(tmp_path).last(count) == lines[-count:]


def test_what_comes(tmp_path: Path, batch: Path) -> None:
    words = Words(tmp_path)
    assert (words.last(5), words.more()) == ([], [])
    with (batch / "7.log").open("w") as log:
        for text, found in (("a\nb", ["a"]), ("c\n", ["bc"]), ("", []), ("\nd\n", ["", "d"])):
            log.write(text)
            log.flush()
            assert words.more() == found
    (batch / "8.log").write_text("e\n")
    assert words.more() == ["e"]
    (batch / "8.log").write_text("")  # begun anew
    assert words.more() == []
    (batch / "8.log").write_text("f\n")
    assert words.more() == ["f"]


def test_much_comes(tmp_path: Path) -> None:
    words, path = Words(tmp_path), tmp_path / "log.txt"
    path.write_text("first\n")
    assert words.last(1) == ["first"]
    lines = [f"{number:09}" for number in range(10**6)]
    with path.open("a") as log:
        log.write("\n".join([*lines, ""]))
    found: list[str] = []
    while some := words.more():
        found += some
    assert "".join(found) == "".join(lines)
    assert set(map(len, found)) == {9}


def test_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "7.log").write_text("secret\n")
    run = tmp_path / "run"
    run.mkdir()
    BatchFiles(run).directory.symlink_to(tmp_path / "outside")
    with pytest.raises(NotARun, match="batch: is a symbolic link"):
        Words(run).last(1)
    BatchFiles(run).directory.unlink()
    BatchFiles(run).directory.mkdir()
    (BatchFiles(run).directory / "7.log").symlink_to(tmp_path / "outside" / "7.log")
    with pytest.raises(NotARun, match=r"7\.log: cannot be read: is a symbolic link"):
        Words(run).last(1)
