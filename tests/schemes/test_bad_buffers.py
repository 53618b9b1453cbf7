"""Updates whose gradient is right and whose statistics (BatchNorm) are not finite."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from psopt import job, precheck
from psopt.data.plan import Ticket
from psopt.models import ModelError
from tests.training import Trained, configured, tiny, train

SCHEMES: dict[str, dict[str, Any]] = {
    "server": {"name": "bsp", "slots": 2},
    "collective": {"name": "bsp", "slots": 2, "exchange": "collective"},
    "asp": {"name": "asp"},
    "wasp": {"name": "wasp", "sync_every": 3},
}


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SCHEMES[request.param]


def run(
    tmp_path: Path, scheme: dict[str, Any], statistics: dict[Ticket, float], **changes: Any
) -> Trained:
    """Six batches of four samples an epoch, on two workers."""
    config = configured(
        tiny(tmp_path, rows=24),
        model={"factory": "tests.zoo:normed"},
        scheme=scheme,
        train={"epochs": 2, "batch_size": 4},
        evaluate={"every_epochs": 1000},
        **{"checkpoint": {"every_steps": 1}, **changes},
    )
    return train(config, tmp_path / "run", workers=2, statistics=statistics)


def saved_buffers(done: Trained) -> list[torch.Tensor]:
    buffers: dict[str, torch.Tensor] = done.saved()["buffers"]
    return [value for value in buffers.values() if value.is_floating_point()]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_they_end_the_job(scheme: dict[str, Any], value: float, tmp_path: Path) -> None:
    """The worker that computed them is named, and what is saved is that before them."""
    done = run(tmp_path, scheme, {Ticket(0, 3): value})
    assert done.status == "diverged"
    assert "worker 1 (rank 2): gradient or buffers not finite" in done.reason
    assert done.coordinator.progress.refused == 1
    assert len(saved_buffers(done)) == 2
    assert all(value.isfinite().all() for value in saved_buffers(done))


def test_they_are_left_out(scheme: dict[str, Any], tmp_path: Path) -> None:
    done = run(tmp_path, scheme, {Ticket(0, 3): math.inf}, on_bad_update="skip")
    slots = 2 if scheme["name"] == "bsp" else 1
    assert (done.status, done.reason) == ("completed", "epochs")
    assert done.coordinator.progress.refused == 1
    assert done.coordinator.progress.step == 12 // slots - 1
    assert done.tickets.refused_samples == 4 * slots
    (warning,) = done.watcher.warnings
    assert "worker 1 (rank 2): gradient or buffers not finite" in warning
    assert all(value.isfinite().all() for value in saved_buffers(done))


def test_left_out_alike_in_both_exchanges(tmp_path: Path) -> None:
    """Parameters and statistics, bit for bit."""
    found = []
    for exchange in ("server", "collective"):
        folder = tmp_path / exchange
        folder.mkdir()
        done = run(folder, SCHEMES[exchange], {Ticket(1, 0): -math.inf}, on_bad_update="skip")
        found.append((done.sha, [value.tolist() for value in saved_buffers(done)]))
    assert found[0] == found[1]


def test_statistics_that_overflow_on_the_server_are_not_saved(tmp_path: Path) -> None:
    """Each update is finite; the way from the largest number to the smallest is not."""
    statistics = {Ticket(0, k): 3e38 if k % 2 else -3e38 for k in range(6)}
    done = run(tmp_path, SCHEMES["wasp"], statistics)
    assert done.status == "diverged"
    assert done.reason == "the model's buffers are not finite at step 2"
    assert done.saved()["progress"]["step"] == 1


def test_a_constant_that_is_infinite_is_found_before_training(tmp_path: Path) -> None:
    config = configured(tiny(tmp_path), model={"factory": "tests.wicked:masked"})
    with pytest.raises(ModelError, match=r"buffer mask is not finite .* persistent=False"):
        precheck.check(job.assemble(config))
