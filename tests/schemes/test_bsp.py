from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from psopt import job
from psopt.data.plan import Ticket
from tests.training import Trained, configured, fresh_module, job_file, tiny, train

EXCHANGES = ["server", "collective"]
PLAIN = {"name": "SGD", "lr": 1.0}


@pytest.fixture(params=EXCHANGES)
def exchange(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def scheme(exchange: str, **options: Any) -> dict[str, Any]:
    return {"name": "bsp", "exchange": exchange, **options}


def full_batch_step(config: Any) -> torch.Tensor:
    """Parameters after one step of gradient descent at rate 1 on all rows at once."""
    model, train = fresh_module(config), job.assemble(config).data.train
    x, y = train.batch(range(len(train)))
    cross_entropy(model(x), y).backward()
    steps = [(p - p.grad).detach().reshape(-1) for p in model.parameters() if p.grad is not None]
    return torch.cat(steps)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_a_round_is_the_mean_over_its_samples(exchange: str, workers: int, tmp_path: Path) -> None:
    """Batches of 4, 4 and 2: the last one counts for half."""
    config = configured(
        tiny(tmp_path, rows=10),
        scheme=scheme(exchange, slots=3),
        model={"name": "mlp", "kwargs": {"hidden": [5]}},
        optimizer=PLAIN,
        train={"epochs": 1, "batch_size": 4},
    )
    done = train(config, tmp_path / "run", workers=workers)
    assert done.coordinator.progress.step == 1
    assert torch.allclose(
        done.coordinator.server.model.parameters, full_batch_step(config), atol=1e-6
    )
    (row,) = done.rows("step")
    assert (row["samples"], row["epoch"]) == (10, 1.0)


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_slots_decide_the_bits_and_workers_do_not(slots: int, tmp_path: Path) -> None:
    data = tiny(tmp_path, rows=22)
    shas = {
        train(
            configured(data, scheme=scheme(exchange, slots=slots)),
            tmp_path / f"{exchange}{workers}",
            workers=workers,
        ).sha
        for exchange in EXCHANGES
        for workers in (1, 2, 4)
    }
    assert len(shas) == 1


def test_slots_are_the_workers_of_the_start(tmp_path: Path) -> None:
    data = tiny(tmp_path)
    by_default = train(configured(data), tmp_path / "a", workers=3)
    assert by_default.coordinator.state.slots == 3
    named = configured(data, scheme=scheme("server", slots=3))
    assert train(named, tmp_path / "b", workers=1).sha == by_default.sha


def test_three_samples_and_seven_workers(exchange: str, tmp_path: Path) -> None:
    """The round has three batches of one sample; four workers have nothing to do."""
    config = configured(
        tiny(tmp_path, rows=3),
        scheme=scheme(exchange),
        optimizer=PLAIN,
        train={"epochs": 1, "batch_size": 1},
    )
    done = train(config, tmp_path / "run", workers=7)
    assert (done.reason, done.coordinator.progress.step) == ("epochs", 1)
    assert torch.allclose(
        done.coordinator.server.model.parameters, full_batch_step(config), atol=1e-6
    )


def poisoned(tmp_path: Path, exchange: str, bad: set[Ticket], **changes: Any) -> Trained:
    config = configured(
        tiny(tmp_path, rows=24),
        scheme=scheme(exchange, slots=2),
        train={"epochs": 4, "batch_size": 4},
        **changes,
    )
    return train(config, tmp_path / "run", workers=2, bad=bad)


def test_bad_update_ends_the_job(exchange: str, tmp_path: Path) -> None:
    done = poisoned(tmp_path, exchange, {Ticket(1, 3)})
    assert done.status == "diverged"
    assert "worker 1 (rank 2): gradient not finite (server version 4)" in done.reason
    assert "on_bad_update: skip" in done.reason
    progress, server = done.coordinator.progress, done.coordinator.server
    assert (progress.step, progress.refused, server.version) == (4, 1, 4)
    assert [row["step"] for row in done.rows("step")] == [1, 2, 3, 4]
    assert server.model.parameters.isfinite().all()
    assert done.tickets.samples == 32


def test_bad_update_is_left_out(exchange: str, tmp_path: Path) -> None:
    done = poisoned(tmp_path, exchange, {Ticket(1, 3), Ticket(2, 0)}, on_bad_update="skip")
    assert (done.status, done.reason) == ("completed", "epochs")
    progress, tickets = done.coordinator.progress, done.tickets
    assert (progress.step, progress.refused) == (10, 2)
    assert (tickets.samples, tickets.refused_samples) == (80, 16)
    assert tickets.finished
    assert Ticket(1, 2) not in done.applied
    assert [row["version"] for row in done.rows("refused")] == [4, 5]
    assert [row["version"] for row in done.rows("step")] == list(range(1, 11))
    assert len(done.watcher.warnings) == 2
    assert "worker 1 (rank 2): gradient not finite" in done.watcher.warnings[0]
    assert "worker 0 (rank 1): gradient not finite" in done.watcher.warnings[1]


def test_left_out_alike_in_both_exchanges(tmp_path: Path) -> None:
    shas = set()
    for exchange in EXCHANGES:
        folder = tmp_path / exchange
        folder.mkdir()
        shas.add(poisoned(folder, exchange, {Ticket(1, 3)}, on_bad_update="skip").sha)
    assert len(shas) == 1


def test_hardly_anything_but_bad_updates(exchange: str, tmp_path: Path) -> None:
    """Skipping ends when eleven updates in a row were bad; bad ones here and there do not count."""
    epochs = {"epochs": 30, "batch_size": 4}
    data, bad = tiny(tmp_path, rows=8), {Ticket(epoch, 0) for epoch in range(0, 30, 2)}
    config = configured(data, scheme=scheme(exchange, slots=2), train=epochs, on_bad_update="skip")
    scattered = train(config, tmp_path / "scattered", workers=2, bad=bad)
    assert scattered.status == "completed"
    assert scattered.coordinator.progress.refused == 15
    always = {Ticket(epoch, 0) for epoch in range(2, 30)}
    ended = train(config, tmp_path / "always", workers=2, bad=always)
    assert ended.status == "diverged"
    assert "the last 11 updates were all refused" in ended.reason
    assert ended.coordinator.progress.step == 2
    assert ended.coordinator.progress.refused == 11
    assert len(ended.rows("refused")) == 10


def test_collective_rounds_end_where_the_loop_has_to_look(tmp_path: Path) -> None:
    config = configured(
        tiny(tmp_path, rows=40),
        scheme=scheme("collective", slots=2),
        evaluate={"every_epochs": 0.5},
        checkpoint={"every_steps": 4},
        stop={"steps": 9},
    )
    done = train(config, tmp_path / "run", workers=2, compute=lambda _w, _n: 0.001)
    ends = [chunk.version + len(chunk.rounds) for chunk in done.crew.chunks]
    assert ends[-1] == 9
    assert {3, 4, 5, 8} <= set(ends)  # half an epoch is 20 samples: during round 3, and so on
    assert all(len(chunk.rounds) > 1 for chunk in done.crew.chunks if chunk.version == 5)
    assert [chunk.install for chunk in done.crew.chunks] == [True] + [False] * (len(ends) - 1)


def test_slots_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="slots"):
        job_file(tmp_path, tiny(tmp_path), scheme=scheme("server", slots=0))
