"""The same job gives the same bits on real ranks, whichever way they exchange, and on virtual workers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from psopt import job
from psopt.record import read_metrics, read_timeline
from psopt.schemes import SCHEMES
from tests.mpi.ranks import module, run
from tests.schemes.test_asp import OPTIMIZERS, serial
from tests.schemes.test_contract import section
from tests.training import configured, job_file, tiny, train

pytestmark = pytest.mark.mpi

PLAIN: dict[str, Any] = {"model": {"name": "mlp", "kwargs": {"hidden": [16]}}}
# Batch normalisation, dropout, Adam, a schedule, clipping; 4 slots on 3 workers, and a last round
# of 2 slots whose last batch has 2 samples.
EVERYTHING: dict[str, Any] = {
    "model": {"factory": "tests.zoo:normed", "kwargs": {"dropout": 0.3}},
    "optimizer": {"name": "Adam", "lr": 0.02},
    "scheduler": {"name": "OneCycleLR", "max_lr": 0.05, "total_steps": 200},
    "train": {"epochs": 5, "batch_size": 4, "clip_norm": 0.5},
}


def summary(path: Path, folder: Path, workers: int, **environment: str) -> dict[str, Any]:
    """Run the job on real ranks; its summary, and what it printed."""
    argv = [*module(workers + 1), path, "--out", folder]
    status, said = run(argv, path.parent, environment=environment)
    assert status == 0, said
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert (found["crew"], found["status"]) == ("mpi", "completed")
    assert found["workers"] == workers
    return {**found, "printed": said}


@pytest.mark.parametrize("exchange", ["server", "collective"])
@pytest.mark.parametrize(
    ("workers", "slots", "changes"),
    [(2, None, PLAIN), (3, 4, EVERYTHING)],
    ids=["plain", "everything"],
)
def test_synchronous(
    workers: int, slots: int | None, changes: dict[str, Any], exchange: str, tmp_path: Path
) -> None:
    data = tiny(tmp_path, rows=42)
    scheme = {"name": "bsp", "slots": slots}
    virtual = train(configured(data, scheme=scheme, **changes), tmp_path / "sim", workers=workers)
    path = job_file(tmp_path, data, scheme={**scheme, "exchange": exchange}, **changes)
    real = summary(path, tmp_path / "run", workers)
    assert real["parameters_sha256"] == virtual.sha
    progress = virtual.coordinator.progress
    assert (real["test_loss"], real["test_accuracy"]) == (
        progress.test_loss,
        progress.test_accuracy,
    )
    keys = ("step", "version", "epoch", "samples", "loss", "accuracy", "worker", "staleness")
    rows = [
        row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "step"
    ]
    assert [[row[key] for key in keys] for row in rows] == [
        [row[key] for key in keys] for row in virtual.rows("step")
    ]


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_asynchronous_with_one_worker_is_serial_training(name: str, tmp_path: Path) -> None:
    optimizer, options = OPTIMIZERS[name]
    changes: dict[str, Any] = {
        "scheme": {"name": "asp"},
        "optimizer": {"name": optimizer.__name__, **options},
        **PLAIN,
    }
    data = tiny(tmp_path, rows=30)
    real = summary(job_file(tmp_path, data, **changes), tmp_path / "run", 1)
    assert real["parameters_sha256"] == serial(configured(data, **changes), optimizer, **options)
    assert (real["mean_staleness"], real["max_staleness"]) == (0.0, 0)


SLICED: dict[str, Any] = {
    "model": {"factory": "tests.zoo:normed", "kwargs": {"dropout": 0.3}},
    "optimizer": None,
    "train": {"epochs": 8, "batch_size": 2},
}


@pytest.mark.parametrize("name", ["sandblaster", "lbfgs_static"])
def test_slices(name: str, tmp_path: Path) -> None:
    """Any number of workers, real and virtual, and either way of dealing."""
    data = tiny(tmp_path, rows=42)
    scheme = {"name": name}
    virtual = train(configured(data, scheme={"name": "sandblaster"}, **SLICED), tmp_path / "sim")
    path = job_file(tmp_path, data, scheme=scheme, **SLICED)
    for workers in (1, 2, 4):
        real = summary(path, tmp_path / f"run{workers}", workers)
        assert real["parameters_sha256"] == virtual.sha
        assert real["test_loss"] == virtual.coordinator.progress.test_loss


def test_emulated_stragglers(tmp_path: Path) -> None:
    """Two workers, one of which takes four times as long as the other for a slice: at least so long."""
    data = tiny(tmp_path, rows=42)
    cluster = {
        "compute": {"distribution": "constant", "mean": 0.01},
        "stragglers": {"1": 4.0},
        "emulate": True,
        "workers": 4,
    }
    scheme = {"name": "sandblaster"}
    path = job_file(tmp_path, data, scheme=scheme, cluster=cluster, **SLICED)
    found = summary(path, tmp_path / "run", 2)
    said = "cluster.workers: 4 is of the virtual cluster; this run has 2 workers"
    assert said in found["printed"]
    fast, slow = (entry["compute"] for entry in found["worker_seconds"])
    assert fast / 0.01 + slow / 0.04 >= 8 * 21 * 0.999
    plain = train(configured(data, scheme=scheme, **SLICED), tmp_path / "sim")
    assert found["parameters_sha256"] == plain.sha


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_every_scheme(name: str, tmp_path: Path) -> None:
    """Three workers: every sample counts once an epoch, and each rank has its lane.

    As if the launcher said that there is a terminal: a bar on the screen, and plain lines in the log.
    """
    epochs, rows = 40, 42
    path = job_file(
        tmp_path,
        tiny(tmp_path, rows=rows),
        scheme=section(name),
        train={"epochs": epochs, "batch_size": 4},
        **PLAIN,
    )
    folder = tmp_path / "run"
    found = summary(path, folder, 3, PSOPT_TERMINAL="100")
    by_tickets = SCHEMES[name].needs_optimizer
    if by_tickets:
        assert found["samples"] == epochs * rows
    else:  # and so it has the bits of virtual workers
        config = job.load(path)
        assert found["parameters_sha256"] == train(config, tmp_path / "sim", workers=3).sha
    steps = [row for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == "step"]
    assert [row["step"] for row in steps] == list(range(1, found["steps"] + 1))
    if by_tickets:
        assert [row["version"] for row in steps] == list(range(1, found["steps"] + 1))
    assert max(row["staleness"] for row in steps) == found["max_staleness"]
    assert all(0 < row["weight"] <= 1 for row in steps)
    if name == "wasp":
        assert all(row["weight"] == 1 / (1 + row["staleness"]) for row in steps)
    assert [entry["worker"] for entry in found["worker_seconds"]] == [0, 1, 2]
    for entry in found["worker_seconds"]:
        assert entry["compute"] > 0
        assert min(entry["wait"], entry["communication"]) >= 0
    spans = [event for event in read_timeline(folder / "timeline.json") if event["ph"] == "X"]
    kinds = {rank: {e["name"] for e in spans if e["tid"] == rank} for rank in range(4)}
    assert {"evaluate", "wait", "checkpoint"} <= kinds[0]
    assert "update" in kinds[0] or not by_tickets
    assert all("compute" in kinds[rank] for rank in (1, 2, 3))
    assert not re.search(r"[^\x20-\x7e\n]", (folder / "log.txt").read_text())
    printed = found["printed"]
    assert "\x1b[" in printed
    assert "epoch" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed)
