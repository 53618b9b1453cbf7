"""Objectives that no method can minimise, in every batch method: the run ends as `diverged`, soon, without NaN."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from psopt.schemes import SCHEMES
from psopt.schemes.base import Spoilt
from psopt.schemes.shards import ShardState
from tests.training import Trained, configured, tiny, train

BATCH_METHODS = sorted(name for name in SCHEMES if not SCHEMES[name].needs_optimizer)
METHODS: dict[str, dict[str, Any]] = {name: {"name": name} for name in BATCH_METHODS}
for _name in ("dane", "inexact_dane"):
    METHODS[f"{_name}, guarded"] = {"name": _name, "safeguard": True}
for _name in ("sandblaster", "lbfgs_static", "cg"):
    METHODS[f"{_name}, mini-batches"] = {"name": _name, "batch": 8}
METHODS["dane, cg"] = {"name": "dane", "local": {"solver": "cg"}}
METHODS["one_shot, corrected"] = {"name": "one_shot", "part": 0.5}


@pytest.fixture(params=METHODS)
def scheme(request: pytest.FixtureRequest) -> dict[str, Any]:
    return METHODS[request.param]


def run(scheme: dict[str, Any], loss: str, tmp_path: Path) -> Trained:
    config = configured(
        tiny(tmp_path, rows=24),
        scheme=scheme,
        optimizer=None,
        loss={"factory": f"tests.schemes.test_lost:{loss}"},
        train={"epochs": 2000, "batch_size": 4},
    )
    return train(config, tmp_path / "run", workers=3)


def infinite() -> Any:
    return lambda output, y: output.sum() * math.inf


def undefined() -> Any:
    """A finite loss, whose gradient is NaN."""
    return lambda output, y: torch.sqrt(output * 0.0).sum() + 1.0


@pytest.mark.parametrize("loss", ["infinite", "undefined"])
def test_not_finite_at_the_start(loss: str, scheme: dict[str, Any], tmp_path: Path) -> None:
    done = run(scheme, loss, tmp_path)
    assert done.status == "diverged"
    assert "not finite" in done.reason
    assert "start" in done.reason or "mini-batch 0" in done.reason or "round 1" in done.reason
    assert done.rows("step") == []
    assert done.coordinator.server.model.parameters.isfinite().all()


def walled() -> Any:
    """Finite at the start, where all outputs are 0, and NaN wherever else."""

    def loss(output: Tensor, y: Tensor) -> Tensor:
        value = torch.nn.functional.cross_entropy(output, y)
        return value + math.nan if bool((output != 0.0).any()) else value

    return loss


def test_finite_at_the_start_alone(scheme: dict[str, Any], tmp_path: Path) -> None:
    done = run(scheme, "walled", tmp_path)
    assert done.status == "diverged"
    assert "finite" in done.reason or "is nan after 1 round" in done.reason
    assert done.coordinator.progress.step < 200
    parameters = done.coordinator.server.model.parameters
    assert parameters.isfinite().all()
    moved = "is nan after" in done.reason  # CG looks nowhere but at the start
    assert torch.equal(parameters, torch.zeros_like(parameters)) is not moved


def endless() -> Any:
    """Linear in the parameters: the lower the further away."""
    return lambda output, y: -output.gather(1, y[:, None]).mean()


SHORT = ("admm", "aide", "giant", "inexact_dane", "dane, cg", "inexact_dane, guarded")
"""Their steps on it are bounded: they go on, in a straight line."""


@pytest.mark.parametrize("name", METHODS)
def test_without_a_minimum(name: str, tmp_path: Path) -> None:
    done = run(METHODS[name], "endless", tmp_path)
    ended = ("completed", "epochs") if name in SHORT else ("diverged", done.reason)
    assert (done.status, done.reason) == ended
    parameters = done.coordinator.server.model.parameters
    assert parameters.isfinite().all()
    if name in SHORT:
        assert done.coordinator.progress.objective is not None
        assert -1e20 < done.coordinator.progress.objective < -100.0


@pytest.mark.parametrize("name", ["dane", "one_shot"])
def test_a_local_problem_without_a_minimum_is_called_so(name: str, tmp_path: Path) -> None:
    """With L-BFGS, which goes far enough to see it."""
    done = run({"name": name, "local": {"passes": 500}}, "endless", tmp_path)
    assert done.status == "diverged"
    assert done.reason == (
        "shard 0: a local problem has no minimum, which a larger mu or loss.l2 would give it, in round 1"
    )


@pytest.mark.parametrize(
    ("first", "measured", "lost"),
    [
        (3.3, 1.9e57, True),  # the first change says nothing of what is usual any more
        (3.3, 1e12, False),
        (1e-30, 1e11, False),
        (1e20, 9e31, False),
        (1e20, 2e32, True),
    ],
)
def test_a_first_round_may_rise_but_not_without_end(
    first: float, measured: float, *, lost: bool
) -> None:
    scheme = SCHEMES["one_shot"](name="one_shot")  # type: ignore[call-arg]
    state = ShardState(3, round=1, first=first, measured=measured)
    with pytest.raises(Spoilt) if lost else contextlib.nullcontext():
        scheme.check(state)  # type: ignore[attr-defined]
