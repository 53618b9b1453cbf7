"""The trial whether ranks outlive each other is made once for each mpirun."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from psopt.launch import survival
from psopt.launch.survival import cache_path, outlives_loss

VERSION = "mpirun (Open MPI) 5.0.11"


class Trial:
    """Stands in for the trial.

    Args:
        answer: what it finds.
    """

    def __init__(self, answer: bool) -> None:
        self.answer, self.made = answer, 0

    def __call__(self, argv: list[str]) -> bool:
        assert argv[-4:] == ["--with-ft", "ulfm", "-n", "2"]
        self.made += 1
        return self.answer


@pytest.fixture
def mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "mpirun"
    path.write_text("")
    return path


def trial(monkeypatch: pytest.MonkeyPatch, *, answer: bool) -> Trial:
    made = Trial(answer)
    monkeypatch.setattr(survival, "survives_loss", made)
    return made


def test_a_yes_is_trusted(mpirun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trial(monkeypatch, answer=True)
    assert [outlives_loss(mpirun, VERSION) for _ in range(3)] == [True] * 3
    assert made.made == 1


def test_a_no_is_tried_again(mpirun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trial(monkeypatch, answer=False)
    assert [outlives_loss(mpirun, VERSION) for _ in range(2)] == [False] * 2
    made.answer = True
    assert outlives_loss(mpirun, VERSION)
    assert made.made == 3


def test_another_mpirun_is_tried(mpirun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its path, its version, or its time; what was known of the first stays known."""
    made = trial(monkeypatch, answer=True)
    other = mpirun.with_name("mpiexec")
    other.write_text("")
    first = mpirun.stat()
    assert outlives_loss(mpirun, VERSION)
    assert outlives_loss(other, VERSION)
    assert outlives_loss(mpirun, VERSION + "a1")
    os.utime(mpirun, ns=(first.st_atime_ns, first.st_mtime_ns + 1))
    assert outlives_loss(mpirun, VERSION)
    os.utime(mpirun, ns=(first.st_atime_ns, first.st_mtime_ns))
    assert outlives_loss(mpirun, VERSION)
    assert made.made == 4


@pytest.mark.parametrize("content", ["", "{", "{}", "null", "[1]"])
def test_a_strange_cache(mpirun: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    made = trial(monkeypatch, answer=True)
    cache_path().parent.mkdir(parents=True)
    cache_path().write_text(content)
    assert outlives_loss(mpirun, VERSION)
    assert outlives_loss(mpirun, VERSION)
    assert made.made == 1
    assert json.loads(cache_path().read_text())


def test_a_cache_that_cannot_be_written(mpirun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trial(monkeypatch, answer=True)
    cache_path().parent.parent.write_text("a file, where a directory should be")
    assert outlives_loss(mpirun, VERSION)
    assert outlives_loss(mpirun, VERSION)
    assert made.made == 2


def test_others_are_not_tried(mpirun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trial(monkeypatch, answer=True)
    assert not outlives_loss(mpirun, "HYDRA build details")
    assert made.made == 0


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_path() == tmp_path / ".cache" / "psopt" / "survivors.json"
