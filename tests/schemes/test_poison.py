"""A worker whose gradients are not numbers, in BSP and every batch method: named, and without a trace in the bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psopt.crew.faults import Faults
from tests.training import Trained, configured, tiny, train

SCHEMES: dict[str, dict[str, Any]] = {
    "bsp": {"name": "bsp"},
    "sandblaster": {"name": "sandblaster"},
    "one slice a task": {"name": "sandblaster", "slices": 1},
    "many slices a task": {"name": "sandblaster", "slices": 5},
    "mini-batch": {"name": "sandblaster", "batch": 20, "iterations": 3},
    "lbfgs_static": {"name": "lbfgs_static"},
    "cg": {"name": "cg"},
    "dane": {"name": "dane", "mu": 1.0},
    "safeguard": {"name": "dane", "safeguard": True},
    "svrg": {"name": "dane", "mu": 1.0, "local": {"solver": "svrg", "lr": 0.05, "passes": 4}},
    "inexact_dane": {"name": "inexact_dane", "mu": 1.0},
    "aide": {"name": "aide", "tau": 1.0},
    "giant": {"name": "giant"},
    "admm": {"name": "admm"},
    "one_shot": {"name": "one_shot"},
}


def trained(
    folder: Path, scheme: dict[str, Any], faults: Faults, workers: int = 4, **options: Any
) -> Trained:
    config = configured(
        tiny(folder, rows=60),
        model={"name": "softmax"},
        scheme=scheme,
        optimizer={"name": "SGD", "lr": 0.05} if scheme["name"] == "bsp" else None,
        loss={"name": "cross_entropy", "l2": 0.01},
        train={"epochs": 30, "batch_size": 4},
        **options,
    )
    number = len(list(folder.iterdir()))
    return train(config, folder / f"run{number}", workers=workers, faults=faults)


def shape(done: Trained) -> tuple[Any, ...]:
    progress = done.coordinator.progress
    return done.status, done.reason, done.sha, progress.step, done.tickets.position


@pytest.mark.parametrize("name", SCHEMES)
def test_it_leaves_no_trace(name: str, tmp_path: Path) -> None:
    calm = trained(tmp_path, SCHEMES[name], Faults())
    hit = trained(tmp_path, SCHEMES[name], Faults(poisoned={1: 0.6}, seed=4))
    assert shape(hit) == shape(calm)
    assert calm.status == "completed"
    by = hit.coordinator.context.offences.by
    assert list(by) == ["1"]
    assert (
        hit.watcher.warnings
        == ["worker 1 (rank 2): its result is not finite; another worker's is, and counts"]
        * by["1"]
    )
    assert calm.coordinator.context.offences.by == {}


@pytest.mark.parametrize("name", ["sandblaster", "lbfgs_static", "dane", "admm"])
def test_who_offends_too_often_is_evicted(name: str, tmp_path: Path) -> None:
    calm = trained(tmp_path, SCHEMES[name], Faults())
    hit = trained(tmp_path, SCHEMES[name], Faults(poisoned={2: 1.0}), cluster={"evict_after": 2})
    assert shape(hit) == shape(calm)
    (why,) = hit.coordinator.crew.fates.values()
    assert why == "has sent 2 results that another worker has disproved"
    assert hit.coordinator.progress.lost == [2]


@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "bsp"])
def test_what_all_say_is_the_objective_s(name: str, tmp_path: Path) -> None:
    """Nobody is to blame for a start where nothing is finite."""
    hit = trained(tmp_path, SCHEMES[name], Faults(poisoned=dict.fromkeys(range(4), 1.0)))
    assert hit.status == "diverged"
    assert hit.coordinator.context.offences.by == {}


@pytest.mark.parametrize("name", ["sandblaster", "dane"])
def test_a_worker_that_is_alone_is_asked_twice(name: str, tmp_path: Path) -> None:
    deaths = dict.fromkeys(range(3), 0.0)
    calm = trained(tmp_path, SCHEMES[name], Faults())
    hit = trained(tmp_path, SCHEMES[name], Faults(deaths=deaths, poisoned={3: 0.01}, seed=5))
    assert hit.sha == calm.sha
    assert list(hit.coordinator.context.offences.by) == ["3"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["sandblaster", "cg", "dane", "bsp"])
def test_an_eviction_in_the_middle_of_an_evaluation(name: str, seed: int, tmp_path: Path) -> None:
    """Whatever the evicted one was at, and though nobody else has anything to do."""
    calm = trained(tmp_path, SCHEMES[name], Faults(), workers=2)
    faults = Faults(poisoned={0: 0.5}, delayed=0.3, delay=0.1, seed=seed)
    hit = trained(tmp_path, SCHEMES[name], faults, workers=2, cluster={"evict_after": 2})
    assert shape(hit) == shape(calm)
    assert hit.coordinator.progress.lost == [0]
