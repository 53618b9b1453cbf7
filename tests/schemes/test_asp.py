from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from psopt.crew.faults import Faults
from psopt.data.plan import Ticket
from psopt.models.flat import parameters_sha256
from psopt.record import CheckpointStore
from tests.training import batches, configured, fresh_module, tiny, train

ASP = {"name": "asp"}
MLP = {"name": "mlp", "kwargs": {"hidden": [7, 5]}}


def serial(config: Any, optimizer: type[torch.optim.Optimizer], **options: Any) -> str:
    """Identity of the parameters that plain PyTorch trains."""
    torch.set_num_threads(1)
    model = fresh_module(config)
    stepper = optimizer(model.parameters(), **options)
    for x, y in batches(config):
        stepper.zero_grad()
        cross_entropy(model(x), y).backward()
        stepper.step()
    return parameters_sha256(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))


OPTIMIZERS = {
    "momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.5, "nesterov": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_worker_is_serial_training(name: str, tmp_path: Path) -> None:
    optimizer, options = OPTIMIZERS[name]
    config = configured(
        tiny(tmp_path, rows=30),
        scheme=ASP,
        model=MLP,
        optimizer={"name": optimizer.__name__, **options},
        train={"epochs": 5, "batch_size": 4},
    )
    expected = serial(config, optimizer, **options)
    assert train(config, tmp_path / "run", workers=1).sha == expected


def test_two_parameter_groups_keep_their_own_lr_and_momentum(tmp_path: Path) -> None:
    config = configured(
        tiny(tmp_path, rows=30),
        scheme=ASP,
        model=MLP,
        optimizer={
            "name": "SGD",
            "lr": 0.05,
            "momentum": 0.9,
            "groups": [{"match": "*.bias", "lr": 0.2, "momentum": 0.0}],
        },
    )
    torch.set_num_threads(1)
    model = fresh_module(config)
    named = dict(model.named_parameters())
    biases = [p for name, p in named.items() if name.endswith("bias")]
    weights = [p for name, p in named.items() if not name.endswith("bias")]
    stepper = torch.optim.SGD(
        [{"params": weights}, {"params": biases, "lr": 0.2, "momentum": 0.0}],
        lr=0.05,
        momentum=0.9,
    )
    for x, y in batches(config):
        stepper.zero_grad()
        cross_entropy(model(x), y).backward()
        stepper.step()
    expected = parameters_sha256(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    assert train(config, tmp_path / "run", workers=1).sha == expected


@pytest.mark.parametrize("workers", [2, 5])
def test_equal_workers_lag_by_the_others(workers: int, tmp_path: Path) -> None:
    config = configured(tiny(tmp_path, rows=40), scheme=ASP, train={"epochs": 3, "batch_size": 1})
    done = train(config, tmp_path / "run", workers=workers)
    staleness = [row["staleness"] for row in done.rows("step")]
    assert staleness[:workers] == list(range(workers))
    assert set(staleness[workers:]) == {workers - 1}
    assert {row["weight"] for row in done.rows("step")} == {1.0}


def test_scripted_arrival_order(tmp_path: Path) -> None:
    """Worker 0 is four times as fast as worker 1."""
    config = configured(tiny(tmp_path, rows=40), scheme=ASP, train={"epochs": 1, "batch_size": 4})
    done = train(config, tmp_path / "run", compute=lambda worker, _: 1.0 if worker == 0 else 4.1)
    arrived = [(row["worker"], row["staleness"]) for row in done.rows("step")]
    assert arrived == [
        *((0, 0), (0, 0), (0, 0), (0, 0), (1, 4)),
        *((0, 1), (0, 0), (0, 0), (0, 0), (1, 4)),
    ]


def test_every_gradient_is_of_the_version_that_its_task_names(tmp_path: Path) -> None:
    config = configured(tiny(tmp_path), scheme=ASP, checkpoint={"every_steps": 1, "keep": 100})
    done = train(config, tmp_path / "run", workers=3)
    store = CheckpointStore(done.run.checkpoints, 100)
    saved = [store.load(path)["parameters"] for path in store.paths()]
    flat = [torch.cat([p.reshape(-1) for p in tree.values()]) for tree in saved]
    for given in done.crew.given:
        if given.task.version > 0 and hasattr(given.task, "ticket"):
            assert torch.equal(given.parameters, flat[given.task.version - 1])


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("per", ["step", "epoch"])
def test_schedule_counts_the_servers_steps_once(workers: int, per: str, tmp_path: Path) -> None:
    config = configured(
        tiny(tmp_path),
        scheme=ASP,
        optimizer={"name": "SGD", "lr": 1.0},
        scheduler={"name": "StepLR", "step_size": 2, "gamma": 0.5, "per": per},
        train={"epochs": 5, "batch_size": 4},  # 25 steps
    )
    done = train(config, tmp_path / "run", workers=workers)
    lr = done.coordinator.server.optimizer.lr
    assert lr == pytest.approx(0.5 ** (12 if per == "step" else 2))


def test_bad_update_names_its_worker(tmp_path: Path) -> None:
    config = configured(tiny(tmp_path), scheme=ASP, on_bad_update="skip")
    done = train(config, tmp_path / "run", workers=2, bad={Ticket(0, 2)})
    assert done.status == "completed"
    (row,) = done.rows("refused")
    assert (row["worker"], row["version"]) == (0, 2)
    (warning,) = done.watcher.warnings
    assert "worker 0 (rank 1): gradient not finite (server version 2)" in warning
    assert done.coordinator.server.model.parameters.isfinite().all()
    assert (done.tickets.samples, done.tickets.refused_samples) == (36, 4)


def test_job_without_workers_is_not_complete(tmp_path: Path) -> None:
    config = configured(tiny(tmp_path, rows=40), scheme=ASP)
    done = train(config, tmp_path / "run", workers=2, faults=Faults(deaths={0: 0.3, 1: 0.1}))
    assert done.status == "failed"
    assert "all workers are gone" in done.reason


def test_lost_worker_gives_its_ticket_back(tmp_path: Path) -> None:
    config = configured(tiny(tmp_path, rows=40), scheme=ASP, train={"epochs": 1, "batch_size": 4})
    done = train(config, tmp_path / "run", workers=3, faults=Faults(deaths={1: 0.06}))
    assert done.reason == "epochs"
    assert sorted(done.applied) == [Ticket(0, k) for k in range(10)]
    assert done.coordinator.crew.workers == (0, 2)
