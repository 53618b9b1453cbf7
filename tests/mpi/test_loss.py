"""A worker that is killed: under Open MPI with ULFM the job goes on and ends with the undisturbed bits.

Any other MPI ends the job, which goes on from its checkpoint with the workers that are left.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from psopt import job
from psopt.launch.flavour import mpirun_argv
from psopt.launch.probe import survives_loss
from tests.mpi.ranks import FLAVOUR, MPIRUN, OPENMPI, Running, launcher, run
from tests.training import job_file, tiny, train

pytestmark = pytest.mark.mpi

TOLERANT = OPENMPI
SCHEMES: dict[str, dict[str, Any]] = {
    "asp": {"name": "asp"},
    "wasp": {"name": "wasp", "sync_every": 5},
    "bsp": {"name": "bsp", "slots": 3},
    "bsp-collective": {"name": "bsp", "slots": 3, "exchange": "collective"},
    "dane": {"name": "dane", "shards": 3, "mu": 1.0, "local": {"passes": 2}},
    "admm": {"name": "admm", "shards": 3, "local": {"passes": 2}},
    "sandblaster": {"name": "sandblaster"},
}
LARGE = 4_200_000
"""Parameters of 16 MB: most kills are in the middle of a message."""


def written(folder: Path, name: str, *, fault: str = "be_killed", **cluster: Any) -> Path:
    kwargs = {"fault": fault, "rank": 2, "at": 5, "size": LARGE}
    by_tickets = SCHEMES[name]["name"] in ("asp", "wasp", "bsp")
    return job_file(
        folder,
        tiny(folder, rows=42),
        model={"factory": "tests.mpi.faulty:build", "kwargs": kwargs},
        scheme=SCHEMES[name],
        optimizer={"name": "SGD", "lr": 0.01},
        train={"epochs": 2 if by_tickets else 12, "batch_size": 4},
        checkpoint={"every_steps": 2},
        cluster={"workers": 3, "on_loss": "continue", **cluster},
    )


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


def undisturbed(path: Path, folder: Path) -> tuple[str, int]:
    """Bits and samples of the run on virtual workers, of which none dies."""
    done = train(job.load(path, ["model.kwargs.fault=go_on"]), folder / "virtual", workers=3)
    return done.sha, done.tickets.samples


def after_the_fault(path: Path, out: Path, folder: Path) -> tuple[int, str]:
    """How a job of three workers ends after its fault, at once where that is not survived; what it said."""
    with Running([*launcher(4), path, "--out", out], folder) as running:
        since = running.until_event()
        return running.ends(None if TOLERANT else since), running.said


@pytest.mark.parametrize("name", SCHEMES if TOLERANT else ["wasp"])
def test_a_killed_worker(name: str, tmp_path: Path) -> None:
    path, out = written(tmp_path, name), tmp_path / "run"
    sha, samples = undisturbed(path, tmp_path)
    status, said = after_the_fault(path, out, tmp_path)
    assert "psopt: rank 2 (worker 1) on" in said
    assert "was killed by signal 9" in said
    if TOLERANT:
        assert status == 0, said
        assert "warning: worker 1 has died; 2 go on" in said
    else:
        assert status != 0
        status, said = run([*launcher(2), "--resume", out], tmp_path)  # rank 2 would die again
        assert status == 0, said
    found = summary(out)
    workers = 2 if TOLERANT else 1
    assert (found["status"], found["workers"], found["samples"]) == ("completed", workers, samples)
    assert (found["degraded"], found["lost_workers"]) == (TOLERANT, [1] if TOLERANT else [])
    if name not in ("asp", "wasp"):
        assert found["parameters_sha256"] == sha


@pytest.mark.parametrize("name", ["asp", "bsp-collective"] if TOLERANT else ["asp"])
def test_a_worker_that_raises(name: str, tmp_path: Path) -> None:
    """It is lost like one that was killed, where MPI goes on without it; else the job ends."""
    path, out = written(tmp_path, name, fault="fail"), tmp_path / "run"
    sha, samples = undisturbed(path, tmp_path)
    status, said = after_the_fault(path, out, tmp_path)
    assert "RuntimeError: injected" in said
    found = summary(out)
    if not TOLERANT:
        assert (status, found["status"]) == (1, "failed")
        return
    assert (status, found["status"], found["lost_workers"]) == (0, "completed", [1]), said
    assert "warning: worker 1 has failed (rank 2 (worker 1) on" in said
    assert found["samples"] == samples
    if name != "asp":
        assert found["parameters_sha256"] == sha


def test_too_few_are_left(tmp_path: Path) -> None:
    """The job ends and says why; one that wants no loss at all ends like that everywhere."""
    path, out = written(tmp_path, "bsp", min_workers=3), tmp_path / "run"
    with Running([*launcher(4), path, "--out", out], tmp_path) as running:
        assert running.ends(running.until_event()) != 0
        said = running.said
    if TOLERANT:
        assert "workers left: 2, cluster.min_workers is 3: resume with more" in said
        assert summary(out)["status"] == "failed"
    assert "psopt run --resume" in said
    other = tmp_path / "other"
    argv = [*launcher(4), path, "--out", other, "--set", "cluster.on_loss=abort"]
    with Running(argv, tmp_path) as running:
        assert running.ends(running.until_event()) != 0
        assert "go on" not in running.said.replace("go on with: psopt", "")


def test_the_coordinator_is_killed(tmp_path: Path) -> None:
    """No process is left, whether losses of workers are survived or not."""
    path, out = written(tmp_path, "asp", fault="go_on"), tmp_path / "run"
    long = ("--set", "train.epochs=100000")
    with Running([*launcher(4), path, "--out", out, *long], tmp_path) as running:
        running.until_event()
        assert running.ends(running.send(signal.SIGKILL, running.pid(out, 0))) != 0


def test_who_survives_is_tried() -> None:
    for tolerant in (True, False):
        argv = mpirun_argv(MPIRUN, FLAVOUR, 2, tolerant=tolerant)
        assert survives_loss(argv, 60.0) is (tolerant and TOLERANT)
