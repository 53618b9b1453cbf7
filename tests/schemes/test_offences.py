"""Bad updates, and who sends them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psopt.crew.base import Tally
from psopt.crew.faults import Faults
from psopt.schemes.offences import Offences
from tests.training import configured, tiny, train


def tally(norm: float | None, *, finite: bool = True) -> Tally:
    return Tally(1.0, 1, 4, finite, norm=norm)


def test_only_finite_ones_are_good() -> None:
    offences = Offences()
    assert offences.good([tally(None), tally(None, finite=False)], None) == [True, False]
    assert offences.norms == []


def test_an_explosion_is_many_times_the_median() -> None:
    offences = Offences()
    for norm in (1.0, 2.0, 3.0, 4.0, 500.0):  # too few yet to judge
        assert offences.good([tally(norm)], 10.0) == [True]
    assert offences.good([tally(30.0), tally(30.1)], 10.0) == [True, False]
    assert offences.norms == [1.0, 2.0, 3.0, 4.0, 500.0]  # of a bad round none is kept
    again = Offences()
    again.restore(offences.state())
    assert again == offences
    for _ in range(100):
        offences.good([tally(2.0)], 10.0)
    assert len(offences.norms) == 51


@pytest.mark.parametrize("scheme", ["asp", "bsp"])
def test_one_in_a_hundred_is_poisoned(scheme: str, tmp_path: Path) -> None:
    """The run ends where it would, and the worker is named with how often it was."""

    def accuracy(poisoned: dict[int, float]) -> tuple[float, dict[str, int], Any]:
        config = configured(
            tiny(tmp_path, rows=400, test=100),
            scheme={"name": scheme},
            train={"epochs": 10, "batch_size": 4},
            optimizer={"name": "SGD", "lr": 0.05},
            on_bad_update="skip",
        )
        faults = Faults(poisoned=poisoned, seed=3)
        done = train(config, tmp_path / f"{len(poisoned)}", workers=4, faults=faults)
        progress = done.coordinator.progress
        assert progress.test_accuracy is not None
        return progress.test_accuracy, done.coordinator.context.offences.by, progress

    calm, nobody, _ = accuracy({})
    found, by, progress = accuracy({2: 0.04})  # of one worker in four: 1 % of all
    assert nobody == {}
    assert list(by) == ["2"]
    assert by["2"] >= 3
    assert progress.refused == (
        by["2"] if scheme == "asp" else 0
    )  # in BSP another worker does it again
    assert abs(found - calm) <= 0.05 * (scheme == "asp")


@pytest.mark.parametrize("scheme", ["asp", "bsp"])
def test_who_offends_too_often_is_evicted(scheme: str, tmp_path: Path) -> None:
    config = configured(
        tiny(tmp_path, rows=100),
        scheme={"name": scheme, **({"slots": 3} if scheme == "bsp" else {})},
        on_bad_update="skip",
        cluster={"evict_after": 2},
    )
    faults = Faults(poisoned={1: 1.0})
    done = train(config, tmp_path / "run", workers=3, faults=faults)
    what = (
        "updates that were refused"
        if scheme == "asp"
        else "results that another worker has disproved"
    )
    assert done.coordinator.crew.fates == {1: f"has sent 2 {what}"}
    assert done.coordinator.progress.lost == [1]
    assert done.coordinator.progress.refused == (2 if scheme == "asp" else 0)
    assert done.tickets.finished


def test_the_last_worker_is_kept(tmp_path: Path) -> None:
    config = configured(
        tiny(tmp_path), scheme={"name": "asp"}, on_bad_update="skip", cluster={"evict_after": 1}
    )
    done = train(config, tmp_path / "run", workers=1, faults=Faults(poisoned={0: 0.2}, seed=1))
    assert done.coordinator.crew.fates == {}
    assert done.coordinator.progress.refused >= 1
