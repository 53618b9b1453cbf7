from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from psopt.launch import doctor as module
from psopt.launch.doctor import doctor, examine, show
from psopt.launch.finding import Finding, Level
from psopt.launch.flavour import MpirunError

OK = Finding(Level.OK, "cores", "2 of 4")
WARN = Finding(Level.WARN, "threads", "OMP_NUM_THREADS='[all]'", "unset it")
FAIL = Finding(Level.FAIL, "MPI ranks", "a world of 1", "pip install 'psopt[mpich]'")


def console(width: int = 100) -> Console:
    return Console(file=io.StringIO(), width=width, color_system=None)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("findings", "status", "verdict"),
    [
        ([OK], 0, "Ready to run."),
        ([OK, WARN, WARN], 0, "Ready to run, warnings: 2."),
        ([FAIL, WARN, OK], 1, "Not ready to run, failures: 1."),
    ],
)
def test_status(
    monkeypatch: pytest.MonkeyPatch, findings: list[Finding], status: int, verdict: str
) -> None:
    monkeypatch.setattr(module, "examine", lambda: iter(findings))
    output = console()
    assert doctor(output) == status
    assert text(output).splitlines()[-1] == verdict


def test_layout() -> None:
    """Words in square brackets are no markup, and a long detail stays in its column."""
    output = console(width=60)
    show(output, WARN)
    show(output, Finding(Level.OK, "HDF5 locking", "works " * 12))
    assert [line.rstrip() for line in text(output).splitlines()] == [
        "warn  threads       OMP_NUM_THREADS='[all]'",
        "                    remedy: unset it",
        "ok    HDF5 locking  works works works works works works",
        "                    works works works works works works",
    ]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_mpirun_is_a_failure(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> Path:
        raise MpirunError("no mpirun; pip install 'psopt[mpich]'")

    monkeypatch.setattr(module, "find_mpirun", find)
    findings = list(examine())
    assert [finding.title for finding in findings if finding.level is Level.FAIL] == ["mpirun"]
    assert findings[-1].detail.startswith("no mpirun")


def test_the_runs_directory_is_looked_at_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_examine_mpi", lambda: iter(()))
    (here / "runs").mkdir()
    details = [finding.detail for finding in examine() if finding.title == "disk"]
    assert [detail.split(" is writable")[0] for detail in details] == [str(here), f"{here}/runs"]


@pytest.mark.mpi
def test_this_machine(here: Path) -> None:
    output = console(width=400)
    assert doctor(output) == 0, text(output)
    assert "2 ranks talk" in text(output)
    assert list(here.iterdir()) == []
