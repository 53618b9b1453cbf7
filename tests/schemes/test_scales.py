"""Objectives of all sizes, and shifted ones: the course is that of the plain one, and verdicts are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.nn.functional import cross_entropy

from tests.training import Trained, configured, tiny, train

EXACT: dict[str, Any] = {"solver": "cg", "passes": 40}


def changed(factor: float = 1.0, shift: float = 0.0) -> Any:
    return lambda output, y: cross_entropy(output, y) * factor + shift


def fake() -> Any:
    """A constant, with a gradient."""
    return lambda output, y: 1.0 + (output - output.detach()).mean()


def run(folder: Path, scheme: dict[str, Any], loss: dict[str, Any], **changes: Any) -> Trained:
    config = configured(
        tiny(folder, rows=30),
        scheme=scheme,
        optimizer=None,
        loss=loss,
        **{"train": {"epochs": 10**4, "batch_size": 10}, "stop": {"steps": 5}, **changes},
    )
    return train(config, folder / "run", workers=3)


def scaled(factor: float, shift: float = 0.0) -> dict[str, Any]:
    options = {"factor": factor, "shift": shift}
    return {
        "factory": "tests.schemes.test_scales:changed",
        "kwargs": options,
        "l2": 0.01 * factor,
    }


@pytest.mark.parametrize("power", [-23, -12, 12, 19, 24])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "scheme",
    [{"name": "giant"}, {"name": "dane", "local": EXACT}, {"name": "inexact_dane", "local": EXACT}],
    ids=lambda scheme: scheme["name"],
)
def test_cg_knows_no_scale(scheme: dict[str, Any], dtype: str, power: int, tmp_path: Path) -> None:
    factor, model = 10.0**power, {"name": "softmax", "dtype": dtype}
    plain = run(tmp_path, scheme, scaled(1.0), model=model)
    (tmp_path / "run").rename(tmp_path / "plain")
    done = run(tmp_path, scheme, scaled(factor), model=model)
    assert (done.status, done.reason) == ("completed", "steps")
    expected = plain.coordinator.progress.objective
    assert expected is not None
    assert done.coordinator.progress.objective == pytest.approx(factor * expected, rel=1e-4)


@pytest.mark.parametrize("power", [19, 21, 30])
@pytest.mark.parametrize("name", ["dane", "inexact_dane", "aide", "one_shot"])
def test_a_large_objective_is_not_lost(name: str, power: int, tmp_path: Path) -> None:
    """Local problems of L-BFGS, whose linear term goes far below zero."""
    loss = scaled(10.0**power)
    done = run(tmp_path, {"name": name}, loss, model={"name": "softmax", "dtype": "float64"})
    assert done.status == "completed"
    first = done.rows("start")[0]["objective"]
    if name != "dane":  # which these shards of ten rows let rise, without mu
        assert done.rows("step")[-1]["objective"] < 0.9 * first


def test_a_constant_in_the_loss_does_not_show(tmp_path: Path) -> None:
    """The verdict on a rise is about the change: 2.30 at the start is 0 with another constant."""
    local = {"solver": "sgd", "lr": 30.0, "passes": 3}
    found = []
    for k, shift in enumerate((0.0, -1.0986122886681098)):
        folder = tmp_path / str(k)
        folder.mkdir()
        done = run(folder, {"name": "dane", "mu": 0.1, "local": local}, scaled(1.0, shift))
        assert done.status == "completed"
        found.append([row["objective"] - shift for row in done.rows("step")])
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert found[0][0] > 1.1 * 1.0986122886681098


def test_rejected_rounds_end_with_the_epochs(tmp_path: Path) -> None:
    """A gradient that is none of the objective: there is no step, and 30 rounds would be looked for."""
    scheme = {"name": "dane", "safeguard": True, "mu": 0.03, "local": {"passes": 10}}
    loss = {"factory": "tests.schemes.test_scales:fake", "l2": 0.01}
    done = run(tmp_path, scheme, loss, train={"epochs": 20, "batch_size": 10}, stop={})
    assert (done.status, done.reason, done.coordinator.progress.step) == ("completed", "epochs", 0)
    assert 20 <= done.tickets.epoch < 20 + 10 + 7
    assert done.coordinator.progress.objective == done.rows("start")[0]["objective"]


def test_giant_at_its_optimum_has_come_to_the_end_of_precision(tmp_path: Path) -> None:
    model = {"name": "softmax", "dtype": "float64"}
    done = run(tmp_path, {"name": "giant"}, scaled(1.0), model=model, stop={})
    assert done.status == "completed"
    assert done.reason.startswith("precision limit")


def test_admm_that_is_lost_leaves_the_model_of_its_record(tmp_path: Path) -> None:
    """And not one from which a local problem began."""
    scheme = {"name": "admm", "rho": 0.1, "local": {"solver": "sgd", "lr": 1e25, "passes": 4}}
    done = run(tmp_path, scheme, {"name": "cross_entropy"}, checkpoint={"every_steps": 1})
    assert done.status == "diverged"
    assert done.coordinator.progress.step == 0
    parameters = done.coordinator.server.model.parameters
    assert float(parameters.abs().max()) == 0.0


@pytest.mark.parametrize("name", ["sandblaster", "lbfgs_static", "cg"])
@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_done_again_counts_again(name: str, workers: int, tmp_path: Path) -> None:
    """The first evaluation, whose scale nobody knows; the next have that of the one before."""
    config = configured(
        tiny(tmp_path, rows=30),
        scheme={"name": name},
        optimizer=None,
        loss=scaled(1e25),
        train={"epochs": 10**4, "batch_size": 10},
        stop={"steps": 3},
    )
    done = train(config, tmp_path / "run", workers=workers)
    epochs = [row["epoch"] for row in done.rows("step")]
    # From 1/3 the limit rises by 2^20 at a time until 1e25, about 2^83, is within it.
    assert epochs == [5.0, 6.0, 7.0]
    assert done.tickets.samples == 7 * 30
