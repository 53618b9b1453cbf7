from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from psopt.record import NotARun, RunDirectory, RunExists
from psopt.record import directory as module


def test_twenty_at_once_get_twenty_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module.time, "strftime", lambda _format: "20260102-030405")
    barrier = Barrier(20)

    def create(_index: int) -> Path:
        barrier.wait()
        return RunDirectory.create(None, "job").path

    with ThreadPoolExecutor(20) as pool:
        paths = set(pool.map(create, range(20)))
    assert len(paths) == 20
    assert all(path.is_dir() for path in paths)
    assert Path("runs/job-20260102-030405") in paths
    assert Path("runs/job-20260102-030405-20") in paths


def test_name_carries_date_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = RunDirectory.create(None, "job").path.name
    assert [len(part) for part in name.split("-")] == [3, 8, 6]


def test_given_path_is_made_with_its_parents(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "a b" / "it's (1)", "job")
    run.write_config("name: job\n")
    assert RunDirectory.open(run.path).config_path.read_text() == "name: job\n"


def test_existing_run_is_refused_with_a_remedy(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run", "job").write_config("name: job\n")
    with pytest.raises(RunExists, match="--resume"):
        RunDirectory.create(tmp_path / "run", "job")


def test_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunExists, match=r"thesis\.tex"):
        RunDirectory.create(tmp_path, "job")


def test_launcher_files_are_allowed(tmp_path: Path) -> None:
    for name in ("job.sh", "slurm-12.out"):
        (tmp_path / name).write_text("")
    allowed = ("job.sh", "slurm-*.out")
    assert RunDirectory.create(tmp_path, "job", allowed=allowed).path == tmp_path
    with pytest.raises(RunExists, match="slurm-12"):
        RunDirectory.create(tmp_path, "job", allowed=("job.sh",))


@pytest.mark.parametrize("part", ["file", "file/run"])
def test_file_in_the_way(tmp_path: Path, part: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunExists, match="is a file"):
        RunDirectory.create(tmp_path / part, "job")


def test_open_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="no such directory"):
        RunDirectory.open(tmp_path / "missing")
    with pytest.raises(NotARun, match=r"config\.yaml is missing"):
        RunDirectory.open(tmp_path)


def test_summary_round_trip(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "job")
    assert run.read_summary() is None
    run.write_summary({"steps": 3, "test_loss": float("nan")})
    assert run.read_summary() == {"steps": 3, "test_loss": None}


@pytest.mark.parametrize("text", ["{", "[1]", "\0\0"])
def test_damaged_summary_is_named(tmp_path: Path, text: str) -> None:
    run = RunDirectory.create(tmp_path, "job")
    run.summary_path.write_text(text)
    with pytest.raises(NotARun, match=r"summary\.json: not"):
        run.read_summary()


def test_every_file_has_its_own_place(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    paths = [
        *(run.config_path, run.environment_path, run.metrics_path, run.summary_path, run.log_path),
        *(run.timeline_path, run.checkpoints, run.ranks_path, run.attempts_path),
    ]
    assert len(set(paths)) == 9
    assert {path.parent for path in paths} == {tmp_path}
