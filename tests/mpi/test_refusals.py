"""Jobs that cannot start say why, once, and end with status 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mpi.ranks import Running, command, launcher, module, run
from tests.training import job_file, tiny

pytestmark = pytest.mark.mpi


def test_wrong_config_is_told_once(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: a b\nmodel: {name: softmax}\nscheme: {name: asp}\n")
    status, said = run([*command(), job], tmp_path)
    assert status == 2, said
    for what in ("job.yaml:1:7: ", "optimizer"):
        assert said.count(what) == 1, said
    assert "Traceback" not in said


@pytest.mark.parametrize("way", [module, launcher])
def test_missing_data_is_told_once(way: Callable[[], list[str]], tmp_path: Path) -> None:
    job = job_file(tmp_path, tmp_path / "nowhere.h5")
    status, said = run([*way(), job, "--out", "run"], tmp_path)
    assert status == 2, said
    assert said.count("nowhere.h5") == 1, said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


def test_directory_that_holds_a_run(tmp_path: Path) -> None:
    job = job_file(tmp_path, tiny(tmp_path))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("name: earlier\n")
    status, said = run([*module(), job, "--out", "run"], tmp_path)
    assert status == 2, said
    assert said.count("holds a run already; continue it with --resume") == 1, said
    assert (tmp_path / "run" / "config.yaml").read_text() == "name: earlier\n"


def test_number_of_ranks_that_is_not_the_worlds(tmp_path: Path) -> None:
    job = job_file(tmp_path, tiny(tmp_path))
    status, said = run([*command(), job, "-n", "4"], tmp_path)
    assert status == 2, said
    assert said.count("-n says 4 ranks, but mpirun or srun started 3: leave out -n") == 1, said


@pytest.mark.parametrize("way", [module, launcher])
def test_a_coordinator_alone(way: Callable[[int], list[str]], tmp_path: Path) -> None:
    job = job_file(tmp_path, tiny(tmp_path))
    status, said = run([*way(1), job], tmp_path)
    assert status == 2, said
    assert said.count("--simulate") == 1, said


def test_simulation_under_mpirun(tmp_path: Path) -> None:
    job = job_file(tmp_path, tiny(tmp_path))
    status, said = run([*module(), job, "--simulate"], tmp_path)
    assert status == 2, said
    assert said.count("start it without mpirun or srun") == 1, said


@pytest.mark.parametrize("process", ["0", "2"])
def test_each_process_sees_a_world_of_one(process: str, tmp_path: Path) -> None:
    """As under srun with the wrong --mpi: a hint, from the first process only."""
    job = job_file(tmp_path, tiny(tmp_path))
    slurm = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": process}
    status, said = run([sys.executable, "-m", "psopt", "run", job], tmp_path, environment=slurm)
    assert status == 2, said
    if process == "0":
        assert "started 3 processes, but each sees an MPI world of 1" in said
        assert "--mpi" in said
    else:
        assert said == ""


@pytest.mark.parametrize("frozen", [True, False])
def test_models_that_differ(frozen: bool, tmp_path: Path) -> None:
    factory = {"factory": "tests.mpi.faulty:unseeded", "kwargs": {"frozen": frozen}}
    job = job_file(tmp_path, tiny(tmp_path), model=factory)
    with Running([*module(), job, "--out", "run"], tmp_path) as running:
        status = running.ends()
        said = running.said
    assert status != 0, said
    assert "has built another model than rank 0" in said
    assert "unseeded random numbers" in said


def test_awkward_paths(tmp_path: Path) -> None:
    """Spaces, quotes and parentheses in the working directory, the job's path and the run's."""
    folder = tmp_path / 'it\'s (a) "good" $HOME & place'
    folder.mkdir()
    job = job_file(folder, tiny(folder), train={"epochs": 1, "batch_size": 4})
    job = job.rename(folder / "my 'job' (1).yaml")
    out = 'out "put" (2)\'s'
    status, said = run([*launcher(), job.name, "--out", out], folder)
    assert status == 0, said
    assert f"run directory: {out}" in said
    assert (folder / out / "summary.json").is_file()


def test_closed_standard_streams(tmp_path: Path) -> None:
    job = job_file(tmp_path, tiny(tmp_path), train={"epochs": 1, "batch_size": 4})
    words = ["bash", "-c", '"$@" <&- >&- 2>&-', "bash", *launcher(), str(job), "--out", "run"]
    status, said = run(words, tmp_path)
    assert (status, said) == (0, "")
    assert (tmp_path / "run" / "summary.json").is_file()


def test_interpreter_is_the_same_everywhere() -> None:
    """The ranks of these tests are of the environment that runs them."""
    assert Path(launcher()[0]).parent == Path(sys.executable).parent
    assert os.access(launcher()[0], os.X_OK)
