from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from psopt import job
from psopt.config import ConfigError
from psopt.crew.base import Gradient
from psopt.record import CheckpointStore
from psopt.schemes.wasp import Wasp
from tests.training import Given, Trained, configured, job_file, tiny, train

SGD = {"name": "SGD", "lr": 0.05, "momentum": 0.9}


def wasp(**options: Any) -> dict[str, Any]:
    return {"name": "wasp", **options}


def speeds(worker: int, samples: int) -> float:
    """One straggler among workers that differ a little."""
    return 0.01 * samples * (1 + 0.21 * worker) * (4.0 if worker == 2 else 1.0)


def run(tmp_path: Path, workers: int, rows: int = 60, **changes: Any) -> Trained:
    options = {"train": {"epochs": 1, "batch_size": 2}, **changes}
    config = configured(tiny(tmp_path, rows=rows), **options)
    return train(config, tmp_path / "run", workers=workers, compute=speeds)


def gradients(done: Trained) -> list[Given]:
    return [given for given in done.crew.given if isinstance(given.task, Gradient)]


def test_weights() -> None:
    def weights(weight: Any, alpha: float = 1.0) -> list[float]:
        scheme = Wasp(name="wasp", weight=weight, alpha=alpha)
        return [scheme.factors(sigma)[0] for sigma in (0, 1, 2, 7)]

    assert weights("inverse") == [1, 1 / 2, 1 / 3, 1 / 8]
    assert weights("none") == [1, 1, 1, 1]
    assert weights("exponential", 0.5) == [math.exp(-0.5 * sigma) for sigma in (0, 1, 2, 7)]
    assert weights("polynomial", 0.5) == pytest.approx([1, 2**-0.5, 3**-0.5, 8**-0.5])
    assert weights("polynomial", 1.0) == weights("inverse")


def test_weight_on_gradient_or_rate() -> None:
    assert Wasp(name="wasp").factors(3) == (0.25, 1.0)
    assert Wasp(name="wasp", weight_on="rate").factors(3) == (1.0, 0.25)


def test_weights_of_a_run_follow_its_staleness(tmp_path: Path) -> None:
    done = run(tmp_path, 4, scheme=wasp())
    rows = done.rows("step")
    assert max(row["staleness"] for row in rows) > 2
    assert all(row["weight"] == 1 / (1 + row["staleness"]) for row in rows)


@pytest.mark.parametrize("sync", ["barrier", "snapshot"])
def test_one_worker_is_bsp_with_one_worker(sync: str, tmp_path: Path) -> None:
    """Every staleness is 0, so every weight is 1."""
    changes: dict[str, Any] = {"optimizer": SGD, "train": {"epochs": 3, "batch_size": 4}}
    data = tiny(tmp_path)
    serial = train(configured(data, **changes), tmp_path / "bsp", workers=1)
    config = configured(data, scheme=wasp(sync_every=4, sync=sync), **changes)
    assert train(config, tmp_path / "wasp", workers=1).sha == serial.sha


@pytest.mark.parametrize("on", ["gradient", "rate"])
def test_no_weight_and_no_sync_is_asp(on: str, tmp_path: Path) -> None:
    data = tiny(tmp_path)
    asp = train(configured(data, scheme={"name": "asp"}), tmp_path / "a", workers=3, compute=speeds)
    config = configured(data, scheme=wasp(weight="none", sync_every=None, weight_on=on))
    assert train(config, tmp_path / "b", workers=3, compute=speeds).sha == asp.sha


def test_barrier(tmp_path: Path) -> None:
    """After a forced sync all workers start from one version, and nobody before all have arrived."""
    workers, period = 4, 5
    done = run(tmp_path, workers, scheme=wasp(sync_every=period))
    versions = [given.task.version for given in gradients(done)]
    assert versions[:workers] == [0] * workers
    starts = [v for v in sorted(set(versions)) if versions.count(v) == workers]
    assert len(starts) >= 4
    for version in starts[1:]:
        first = versions.index(version)
        assert versions[first : first + workers] == [version] * workers
        assert {given.worker for given in gradients(done)[first : first + workers]} == {0, 1, 2, 3}
        assert len({given.at for given in gradients(done)[first : first + workers]}) == 1
        # from the boundary on nobody starts, and only what was open is applied
        assert all(earlier < version // period * period for earlier in versions[:first])
    late = [row["staleness"] for row in done.rows("step") if row["version"] - 1 in starts]
    assert late == [0] * len(late)


def test_barriers_come_every_period(tmp_path: Path) -> None:
    """One worker never has anybody to wait for: the boundary is always exactly at the period."""
    done = run(tmp_path, 1, rows=22, scheme=wasp(sync_every=4))
    assert done.coordinator.progress.step == 11
    assert done.coordinator.state.next_sync == 12
    assert not done.coordinator.state.draining


def test_snapshot(tmp_path: Path) -> None:
    """Each worker gets the frozen version once, bit by bit as it was at the boundary; nobody waits."""
    workers, period = 4, 20
    scheme = wasp(sync="snapshot", sync_every=period)
    changes = {"checkpoint": {"every_steps": period, "keep": 100}}
    done = run(tmp_path, workers, rows=160, scheme=scheme, **changes)
    given = gradients(done)

    store, checked = CheckpointStore(done.run.checkpoints, 100), 0
    for path in store.paths():
        version, tree = int(path.stem.split("-")[1]), store.load(path)
        takers = [g for g in given if g.task.version == version]
        frozen = torch.cat([p.reshape(-1) for p in tree["parameters"].values()])
        assert all(torch.equal(g.parameters, frozen) for g in takers)
        assert len({g.worker for g in takers}) == len(takers)
        checked += len(takers) == workers
    assert checked >= 3
    for worker in range(workers):  # a worker is given its next task when its reply has come
        mine = [g.at for g in given if g.worker == worker]
        busy = [speeds(worker, 2)] * (len(mine) - 1)
        assert [b - a for a, b in pairwise(mine)] == pytest.approx(busy, rel=1e-2)


def test_snapshot_is_of_the_boundary_when_a_worker_comes_late(tmp_path: Path) -> None:
    done = run(tmp_path, 3, scheme=wasp(sync="snapshot", sync_every=8))
    late = [row for row in done.rows("step") if row["worker"] == 2 and row["staleness"] > 3]
    assert late
    starts = [g.task.version for g in gradients(done) if g.worker == 2]
    assert any(version % 8 == 0 and version > 0 for version in starts)


def test_rate_is_like_gradient_for_plain_sgd_and_unlike_for_momentum(tmp_path: Path) -> None:
    def parameters(on: str, momentum: float) -> torch.Tensor:
        folder = tmp_path / f"{on}{momentum}"
        folder.mkdir()
        done = run(
            folder,
            4,
            scheme=wasp(weight_on=on, sync_every=None),
            optimizer={"name": "SGD", "lr": 0.1, "momentum": momentum},
        )
        return done.coordinator.server.model.parameters

    assert torch.allclose(parameters("gradient", 0.0), parameters("rate", 0.0), atol=1e-6)
    assert not torch.allclose(parameters("gradient", 0.9), parameters("rate", 0.9), atol=1e-3)


def test_rate_reaches_adam_and_leaves_its_moments_and_lr(tmp_path: Path) -> None:
    adam = {"name": "Adam", "lr": 0.01}
    data, options = tiny(tmp_path), {"sync_every": None, "weight_on": "rate"}
    full = train(
        configured(data, scheme=wasp(weight="none", **options), optimizer=adam),
        tmp_path / "full",
        workers=4,
    )
    weighted = train(
        configured(data, scheme=wasp(**options), optimizer=adam), tmp_path / "weighted", workers=4
    )
    assert weighted.coordinator.server.optimizer.lr == 0.01
    assert weighted.sha != full.sha
    start = torch.zeros_like(full.coordinator.server.model.parameters)
    moved = [torch.dist(t.coordinator.server.model.parameters, start) for t in (weighted, full)]
    assert moved[0] < 0.7 * moved[1]


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "RMSprop", "Adagrad"])
def test_weight_on_a_scaled_gradient_is_refused(optimizer: str, tmp_path: Path) -> None:
    path = job_file(
        tmp_path, tiny(tmp_path), scheme=wasp(), optimizer={"name": optimizer, "lr": 0.01}
    )
    with pytest.raises(ConfigError, match=rf"{optimizer} divides .*'weight_on: rate'") as caught:
        job.load(path)
    line = int(str(caught.value).removeprefix(f"{path}:").partition(":")[0])
    assert "weight_on" in path.read_text().splitlines()[line - 1]
    for option in ("scheme.weight_on=rate", "scheme.weight=none"):
        assert job.load(path, [option]).optimizer.name == optimizer


LINEAR = {"name": "mlp", "kwargs": {"hidden": []}}


def lossy(tmp_path: Path, scheme: dict[str, Any], workers: int) -> tuple[str, float]:
    """Status and last test loss of a least-squares fit at a rate that suits serial training."""
    config = configured(
        tiny(tmp_path, rows=256, test=64, regression=True),
        scheme=scheme,
        model=LINEAR,
        loss={"name": "mse"},
        optimizer={"name": "SGD", "lr": 0.3},
        train={"epochs": 12, "batch_size": 16},
    )
    done = train(config, tmp_path / f"{scheme['name']}{workers}", workers=workers)
    loss = done.coordinator.progress.test_loss
    return done.status, math.inf if loss is None or not math.isfinite(loss) else loss


def test_eight_stale_workers_where_asp_diverges(tmp_path: Path) -> None:
    """Staleness 7 is too much for a rate that serial training is happy with; weights cure it."""
    assert lossy(tmp_path, {"name": "asp"}, 1)[1] < 1e-6
    _, diverged = lossy(tmp_path, {"name": "asp"}, 8)
    assert diverged > 1e3
    status, converged = lossy(tmp_path, wasp(sync_every=64), 8)
    assert status == "completed"
    assert converged < 1e-3
