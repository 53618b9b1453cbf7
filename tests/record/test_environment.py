from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from psopt.record import batch_job, environment, to_json


def test_names_versions_and_machine() -> None:
    found = json.loads(to_json(environment({"library": "MPICH 4.2"})))
    assert found["mpi"] == {"library": "MPICH 4.2"}
    assert found["packages"]["torch"].startswith("2")
    assert found["hostname"]
    assert 1 <= found["usable_cpus"] <= found["cpus"]


def test_keeps_variables_but_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_JWT", "a token")
    monkeypatch.setenv("PSOPT_API_KEY", "a key")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("SOMETHING_ELSE", "x")
    variables = environment()["variables"]
    assert variables["SLURM_JOB_ID"] == "12"
    assert variables["OMP_NUM_THREADS"] == "1"
    assert not {"SLURM_JWT", "PSOPT_API_KEY", "SOMETHING_ELSE"} & set(variables)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, {}),
        ({"RESTART_COUNT": "3"}, {}),
        ({"JOB_ID": "12"}, {"batch_job": "12", "batch_restarts": 0}),
        ({"JOB_ID": "12", "RESTART_COUNT": "3"}, {"batch_job": "12", "batch_restarts": 3}),
        ({"JOB_ID": "12", "RESTART_COUNT": "x"}, {"batch_job": "12", "batch_restarts": 0}),
        (
            {"JOB_ID": "14", "ARRAY_JOB_ID": "12", "ARRAY_TASK_ID": "7"},
            {"batch_job": "12_7", "batch_restarts": 0},
        ),
    ],
)
def test_batch_job(variables: dict[str, str], found: dict[str, object]) -> None:
    assert batch_job({f"SLURM_{name}": value for name, value in variables.items()}) == found


def git(*arguments: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_git_commit_and_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment()["git"] is None
    git("init", "-q")
    Path("a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert environment()["git"] == {"commit": commit, "dirty": False}
    Path("a").write_text("2")
    assert environment()["git"] == {"commit": commit, "dirty": True}


def test_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert environment()["git"] is None
