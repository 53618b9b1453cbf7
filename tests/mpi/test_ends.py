"""How jobs end that nobody disturbs, or whose updates are not finite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from psopt.record import CheckpointStore, RunDirectory, read_metrics
from tests.mpi.ranks import SCHEMES, command, launcher, module, run
from tests.training import job_file, tiny

pytestmark = pytest.mark.mpi

SHORT: dict[str, Any] = {"train": {"epochs": 1, "batch_size": 4}}


def test_twenty_short_runs(tmp_path: Path) -> None:
    """None hangs, or ends with another status, on its way out."""
    job = job_file(tmp_path, tiny(tmp_path), **SHORT, scheme=SCHEMES["asp"])
    for number in range(20):
        way = command if number % 2 else module
        status, said = run([*way(), job, "--out", f"run-{number}"], tmp_path)
        assert status == 0, said
        assert "completed" in said
        assert "psopt: " not in said


def test_children_that_have_done_their_work(tmp_path: Path) -> None:
    """A forked child may call sys.exit(0); a child that lives on ends with the job, which is complete."""
    for fault in ("exit_in_child", "have_far_child"):
        model = {
            "factory": "tests.mpi.faulty:build",
            "kwargs": {"fault": fault, "at": 2, "size": 9},
        }
        job = job_file(tmp_path, tiny(tmp_path), **SHORT, model=model)
        status, said = run([*module(), job, "--out", fault], tmp_path)
        assert status == 0, said


def test_diverged(tmp_path: Path) -> None:
    job = job_file(
        tmp_path,
        tiny(tmp_path),
        train={"epochs": 50, "batch_size": 4},
        optimizer={"name": "SGD", "lr": 1e38, "momentum": 0.9},
        scheme=SCHEMES["asp"],
    )
    status, said = run([*launcher(), job, "--out", "run"], tmp_path)
    assert status == 3, said
    assert "diverged (" in said
    assert "go on with" not in said
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "diverged"


@pytest.mark.parametrize("scheme", ["wasp", "collective"])
def test_one_bad_update_is_left_out(scheme: str, tmp_path: Path) -> None:
    """The worker is named, its samples are counted, the parameters stay finite."""
    kwargs = {"fault": "nan", "rank": 2, "at": 2, "size": 9}
    job = job_file(
        tmp_path,
        tiny(tmp_path),
        model={"factory": "tests.mpi.faulty:build", "kwargs": kwargs},
        scheme=SCHEMES[scheme],
        on_bad_update="skip",
    )
    status, said = run([*module(), job, "--out", "run"], tmp_path)
    assert status == 0, said
    assert "worker 1 (rank 2): gradient not finite" in said
    out = RunDirectory(tmp_path / "run")
    summary = out.read_summary()
    assert summary is not None
    assert (summary["status"], summary["refused_updates"]) == ("completed", 1)
    (row,) = [row for row in read_metrics(out.metrics_path) if row["kind"] == "refused"]
    if scheme == "wasp":
        assert row["worker"] == 1
        assert summary["refused_samples"] == 4
    else:
        assert summary["refused_samples"] == 8
    latest = CheckpointStore(out.checkpoints, 1).load_latest()
    assert latest is not None
    assert all(torch.isfinite(value).all() for value in latest[1]["parameters"].values())
