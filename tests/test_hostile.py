"""SECURITY.md: files of others are refused by name and place; they run, open and allocate nothing."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from psopt.record import write_atomic
from psopt.record.files import temporary_for
from tests.commands import call, no_rank, refused
from tests.hostile import FILES, SECRET, TOUCHED, Maker
from tests.hostile_runs import RUNS, checkpoint, directory
from tests.hostile_sweeps import SWEEPS
from tests.training import tiny

__all__ = ["no_rank"]

_ROOM = 2**28  # bytes that a refusal may take, the modules that it imports included
_CASES = {**FILES, **RUNS, **SWEEPS}
_PAGE = resource.getpagesize()


@pytest.fixture(scope="module", autouse=True)
def _imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the commands import is no part of what a file makes them take."""
    folder = tmp_path_factory.mktemp("harmless")
    assert call("data", "info", tiny(folder))[0] == 0
    checkpoint(folder / "step.h5", lambda _: None)
    assert call("export", folder / "step.h5", folder / "out.pt")[0] == 0
    assert call("report", directory(folder))[0] == 0


@contextmanager
def limited() -> Iterator[None]:
    """No more memory than there is, and a little; who asks for more gets a MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * _PAGE + _ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", _CASES.values(), ids=_CASES.keys())
def test_refused(make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    case = make(folder)
    monkeypatch.chdir(folder)
    before = {path: path.lstat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    with limited():
        said = refused(*case.arguments)
    text = " ".join(said.split())
    assert re.search(case.said, text), text
    assert SECRET not in said
    assert not (tmp_path / TOUCHED).exists()
    after = {path: path.lstat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize("command", ["report", "export"])
def test_reading_a_run_imports_no_factory(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    run = directory(folder)
    (run / "checkpoints").mkdir()
    checkpoint(run / "checkpoints" / "step-000000000001.h5", lambda _: None)
    monkeypatch.chdir(folder)
    out = () if command == "report" else (folder / "out.pt",)
    assert call(command, run, *out)[0] == 0
    assert not (tmp_path / TOUCHED).exists()


def test_a_factory_is_a_programme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As SECURITY.md says: to check such a job is to run its code."""
    folder = tmp_path / "folder"
    folder.mkdir()
    run = directory(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert "hostile_model has no build" in refused("validate", run / "config.yaml")
    del sys.modules["hostile_model"]
    assert (tmp_path / TOUCHED).exists()


def test_a_report_goes_on_with_the_other_runs(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    good, bad = directory(tmp_path / "good"), directory(tmp_path / "bad")
    (bad / "summary.json").write_text("[" * 1000)
    status, out, err = call("report", good, bad, "--out", tmp_path / "out")
    assert (status, "hostile" in out) == (2, True)
    assert err.startswith(f"{bad}/summary.json: ")
    assert (tmp_path / "out" / "report.png").exists()


def test_a_temporary_name_that_is_taken(tmp_path: Path) -> None:
    """By a link, which would have this process write outside of the directory."""
    outside, path = tmp_path / "outside", tmp_path / "run" / "report.png"
    outside.write_text(SECRET)
    path.parent.mkdir()
    temporary_for(path).symlink_to(outside)
    write_atomic(path, "new")
    assert (path.read_text(), outside.read_text()) == ("new", SECRET)


def test_texts_of_a_run_do_not_command_the_terminal(tmp_path: Path) -> None:
    run = directory(tmp_path)
    (run / "config.yaml").write_text('name: "a\\e[2Jb"\n')
    (run / "summary.json").write_text('{"status": "failed", "reason": "\\u001b]0;x\\u0007"}')
    status, out, err = call("report", run)
    assert status == 0, err
    assert "\x1b" not in out
    assert "a\\x1b[2Jb" in out
