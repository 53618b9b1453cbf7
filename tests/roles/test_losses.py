"""Virtual workers that die: the run goes on and says so, or ends where too few are left, and goes on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from psopt import job
from psopt.config import ConfigError
from tests.commands import call, no_rank
from tests.training import job_file, tiny

__all__ = ["no_rank"]

SCHEMES: dict[str, dict[str, Any]] = {
    "bsp": {"name": "bsp", "slots": 3},
    "collective": {"name": "bsp", "slots": 3, "exchange": "collective"},
    "wasp": {"name": "wasp", "sync_every": 3},
    "dane": {"name": "dane", "shards": 3, "mu": 1.0},
    "sandblaster": {"name": "sandblaster"},
}
STEADY = {"distribution": "constant", "mean": 0.1}


def written(folder: Path, name: str, **cluster: Any) -> Path:
    epochs = 40 if name == "dane" else 4
    return job_file(
        folder,
        tiny(folder, rows=22),
        scheme=SCHEMES[name],
        optimizer={"name": "SGD", "lr": 0.05},
        train={"epochs": epochs, "batch_size": 4},
        cluster={"workers": 3, "compute": STEADY, **cluster},
    )


def summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


@pytest.mark.parametrize("name", SCHEMES)
def test_a_loss_is_survived_and_said(name: str, tmp_path: Path, no_rank: None) -> None:
    path, whole, run = written(tmp_path, name), tmp_path / "whole", tmp_path / "run"
    assert call("run", path, "--simulate", "--out", whole)[0] == 0
    assert (summary(whole)["degraded"], summary(whole)["lost_workers"]) == (False, [])
    status, text, _ = call(
        "run", path, "--simulate", "--out", run, "--set", "cluster.faults.deaths={1: 0.25}"
    )
    assert status == 0
    assert "warning: worker 1 has died; 2 go on" in text
    found = summary(run)
    assert (found["status"], found["degraded"], found["lost_workers"]) == ("completed", True, [1])
    assert found["workers"] == 2
    assert found["samples"] == summary(whole)["samples"]
    if name != "wasp":
        assert found["parameters_sha256"] == summary(whole)["parameters_sha256"]


@pytest.mark.parametrize("name", SCHEMES)
def test_too_few_are_left(name: str, tmp_path: Path, no_rank: None) -> None:
    path = written(tmp_path, name, faults={"deaths": {0: 0.25, 2: 0.3}}, min_workers=2)
    whole, run = tmp_path / "whole", tmp_path / "run"
    nobody = ("--set", "cluster.faults.deaths={}")
    assert call("run", path, "--simulate", "--out", whole, *nobody)[0] == 0
    status, text, _ = call("run", path, "--simulate", "--out", run)
    assert status == 1
    found = summary(run)
    assert (found["status"], found["degraded"]) == ("failed", True)
    assert sorted(found["lost_workers"]) == [0, 2]
    said = "workers left: 1, cluster.min_workers is 2: resume with more"
    assert found["reason"] == said
    assert f"failed, degraded: workers {found['lost_workers']} lost ({said})" in text
    status, text, _ = call("run", "--resume", run, *nobody)
    assert status == 0
    assert f"resumed at step {found['steps']}" in text
    again = summary(run)
    assert (again["status"], again["samples"]) == ("completed", summary(whole)["samples"])
    assert sorted(again["lost_workers"]) == [0, 2]
    if name != "wasp":
        assert again["parameters_sha256"] == summary(whole)["parameters_sha256"]


@pytest.mark.parametrize("name", SCHEMES)
def test_nobody_is_left(name: str, tmp_path: Path, no_rank: None) -> None:
    path = written(tmp_path, name, faults={"deaths": {0: 0.25, 1: 0.21, 2: 0.3}})
    status, _, said = call("run", path, "--simulate", "--out", tmp_path / "run")
    assert status == 1
    assert "Traceback" not in said
    assert "all workers are gone" in summary(tmp_path / "run")["reason"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("cluster.faults.deaths={3: 1.0}", "there is no worker 3: ids go from 0 to 2"),
        ("cluster.faults.deaths={1: -1.0}", "cluster.faults.deaths"),
        ("cluster.min_workers=4", "there are 3 workers only"),
    ],
)
def test_losses_that_cannot_be(change: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        job.load(written(tmp_path, "bsp"), [change])
