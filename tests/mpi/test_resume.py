"""Jobs that are killed, and resumed from their checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from psopt.data.plan import TicketBook
from psopt.record import CheckpointStore, RunDirectory, read_metrics
from tests.mpi.ranks import launcher, module, run
from tests.training import configured, job_file, tiny, train

pytestmark = pytest.mark.mpi

ROWS, EPOCHS = 42, 4
JOB: dict[str, Any] = {
    "model": {"factory": "tests.deadly:model", "kwargs": {"dropout": 0.2}},
    "optimizer": {"name": "Adam", "lr": 0.02},
    "scheduler": {"name": "CosineAnnealingLR", "T_max": 50},
    "train": {"epochs": EPOCHS, "batch_size": 4, "clip_norm": 0.5},
    "checkpoint": {"every_steps": 3},
}


class Victim:
    """A run that is killed, resumed, and killed again."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.config = configured(tiny(folder, rows=ROWS), **{**JOB, **changes})
        self.path = job_file(folder, folder / "tiny.h5", **{**JOB, **changes})
        self.run, self.folder = folder / "run", folder
        self.epochs = self.config.train.epochs
        self.attempts = 0

    def start(self, workers: int, die_at: str = "") -> str:
        """Start or resume; what it printed. It dies if it is asked to, and else completes."""
        self.attempts += 1
        what = ["--resume", self.run] if self.attempts > 1 else [self.path, "--out", self.run]
        start = module if self.attempts > 1 else launcher
        died = self.folder / f"died-{self.attempts}"
        environment = {"DIE_AT": die_at, "DIED": str(died)}
        status, said = run([*start(workers + 1), *what], self.folder, environment=environment)
        assert (status != 0) == bool(die_at), said
        assert died.exists() == bool(die_at), said
        return said

    def saved_at(self) -> int:
        """Step of the newest checkpoint."""
        latest = CheckpointStore(RunDirectory(self.run).checkpoints, 1).load_latest()
        assert latest is not None
        self.check_account(latest[1]["tickets"])
        return latest[0]

    def check_account(self, tickets: dict[str, Any]) -> None:
        """What was issued is applied, or will be issued again; `restore` refuses anything else."""
        batch = self.config.train.batch_size
        TicketBook(self.config.seed, ROWS, batch, self.epochs).restore(tickets)

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / "summary.json").read_text())
        assert found["status"] == "completed"
        assert (found["samples"], found["epochs"]) == (ROWS * self.epochs, self.epochs)
        assert found["attempts"] == self.attempts
        return found

    def rows(self) -> list[dict[str, Any]]:
        rows = read_metrics(self.run / "metrics.jsonl")
        return [row for row in rows if row["kind"] == "step"]


@pytest.mark.parametrize("exchange", ["server", "collective"])
def test_killed_three_times(exchange: str, tmp_path: Path) -> None:
    """The coordinator between two checkpoints, a worker in a gradient, the coordinator in a save.

    Resumed on 2, 3 and 1 workers it ends with the bits of the run that nobody disturbed.
    """
    victim = Victim(tmp_path, scheme={"name": "bsp", "exchange": exchange, "slots": 2})
    whole = train(victim.config, tmp_path / "whole", workers=2)
    assert "SIGKILL" in victim.start(2, "step 5")
    assert victim.saved_at() == 3
    victim.start(2, "gradient 6")
    saved = victim.saved_at()
    assert saved >= 3
    victim.start(3, "save 2")
    assert len(list((victim.run / "checkpoints").glob(".*.tmp"))) == 1
    assert victim.saved_at() == saved + 3
    said = victim.start(1)
    assert f"resumed at step {saved + 3}" in said
    assert victim.summary()["parameters_sha256"] == whole.sha
    assert list((victim.run / "checkpoints").glob(".*.tmp")) == []
    keys = ("step", "version", "epoch", "samples", "loss", "accuracy")
    assert [[row[key] for key in keys] for row in victim.rows()] == [
        [row[key] for key in keys] for row in whole.rows("step")
    ]


@pytest.mark.parametrize("scheme", ["asp", "wasp"])
def test_asynchronous_run_killed_and_resumed(scheme: str, tmp_path: Path) -> None:
    """Each sample is applied once an epoch, on 3 workers and then on 2."""
    section: dict[str, Any] = {"name": scheme}
    if scheme == "wasp":
        section |= {"weight_on": "rate", "sync_every": 8}
    victim = Victim(tmp_path, scheme=section)
    victim.start(3, "step 20")
    assert victim.saved_at() == 18
    tree = CheckpointStore(RunDirectory(victim.run).checkpoints, 1).load_latest()
    assert tree is not None
    if scheme == "wasp":
        assert tree[1]["scheme"]["next_sync"] == 24
    assert "resumed at step 18" in victim.start(2)
    found, rows = victim.summary(), victim.rows()
    assert found["steps"] == len(rows) == EPOCHS * 11
    assert [row["step"] for row in rows] == list(range(1, EPOCHS * 11 + 1))
    counts = [
        b["samples"] - a["samples"] for a, b in zip([{"samples": 0}, *rows], rows, strict=False)
    ]
    assert sorted(counts) == sorted(([4] * 10 + [2]) * EPOCHS)


@pytest.mark.parametrize("scheme", [{"name": "sandblaster"}, {"name": "cg", "batch": 20}])
def test_killed_between_ask_and_tell(scheme: dict[str, Any], tmp_path: Path) -> None:
    """The coordinator at an evaluation, in a save, and again, with 3, 1, 4 and 2 workers."""
    changes = {"train": {"epochs": 8, "batch_size": 4}, "checkpoint": {"every_steps": 1}}
    if "batch" in scheme:
        changes["train"]["epochs"] = 4
    victim = Victim(tmp_path, scheme=scheme, optimizer=None, scheduler=None, **changes)
    whole = train(victim.config, tmp_path / "whole", workers=2)
    victim.start(3, "step 4")
    assert victim.saved_at() == 3
    victim.start(1, "save 2")
    assert victim.saved_at() == 4
    victim.start(4, "step 2")
    assert victim.saved_at() == 5
    victim.start(2)
    found: dict[str, Any] = json.loads((victim.run / "summary.json").read_text())
    assert found["parameters_sha256"] == whole.sha
    keys = ("step", "epoch", "samples", "loss", "accuracy", "iteration", "gradient_max")
    assert [[row[key] for key in keys] for row in victim.rows()] == [
        [row[key] for key in keys] for row in whole.rows("step")
    ]
