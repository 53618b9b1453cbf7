from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from psopt.config import OptimizerConfig
from psopt.models.flat import FlatModel
from psopt.optim.first_order import FirstOrder
from psopt.roles.server import ParameterServer
from tests.training import configured, tiny, train


def server(momentum: float = 0.0) -> ParameterServer:
    torch.manual_seed(3)
    model = FlatModel(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    config = OptimizerConfig(name="SGD", lr=0.5, momentum=momentum)
    return ParameterServer(model, FirstOrder(model.parameters, model.shapes, config))


def update(host: ParameterServer) -> tuple[torch.Tensor, ...]:
    """Gradient of ones; statistics 3; two batches counted."""
    gradient, *buffers = (torch.zeros_like(vector) for vector in host.vectors)
    values = {True: 2, False: 3}
    for group, value in zip(host.model.buffers, buffers, strict=True):
        value.fill_(values[group.counts])
    return gradient.fill_(1.0), *buffers


def buffers(host: ParameterServer) -> dict[bool, torch.Tensor]:
    return {group.counts: group.flat.clone() for group in host.model.buffers}


def test_weight_and_rate() -> None:
    for factors in ({"weight": 0.25}, {"rate": 0.25}):
        host = server()
        before, statistics = host.model.parameters.clone(), buffers(host)[False]
        host.apply(update(host), epoch=0, **factors)
        assert torch.allclose(host.model.parameters, before - 0.125)
        assert torch.allclose(buffers(host)[False], statistics + 0.25 * (3 - statistics))
        assert buffers(host)[True].tolist() == [2]
        assert host.version == 1


def test_full_weight_takes_statistics_over() -> None:
    host = server()
    host.apply(update(host), epoch=0)
    host.apply(update(host), epoch=0)
    assert set(buffers(host)[False].tolist()) == {3.0}
    assert buffers(host)[True].tolist() == [4]
    assert host.version == 2


def test_rate_is_of_one_step_only() -> None:
    host = server(momentum=0.9)
    host.apply(update(host), epoch=0, rate=0.0)
    before = host.model.parameters.clone()
    host.apply(update(host), epoch=0)
    assert torch.allclose(host.model.parameters, before - 0.5 * 1.9)
    assert host.optimizer.lr == 0.5


def test_state_restores_bit_by_bit() -> None:
    one, other = server(momentum=0.9), server(momentum=0.9)
    one.apply(update(one), epoch=0)
    other.restore({**one.state()})
    for host in (one, other):
        host.apply(update(host), epoch=0)
    assert other.sha256() == one.sha256()
    assert other.version == one.version == 2
    assert torch.equal(buffers(other)[False], buffers(one)[False])


def test_checkpoint_of_another_model_is_refused() -> None:
    host = server()
    state = host.state()
    with pytest.raises(ValueError, match="another model: names differ"):
        host.restore({**state, "parameters": {"other": torch.zeros(3)}})


@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_batch_norm_statistics_follow_the_data(scheme: str, tmp_path: Path) -> None:
    """They are not zero in the checkpoint, and the counter counts the server's updates."""
    config = configured(
        tiny(tmp_path, rows=24),
        scheme={"name": scheme},
        model={"factory": "tests.zoo:normed"},
        train={"epochs": 6, "batch_size": 8},
    )
    done = train(config, tmp_path / "run", workers=2)
    saved = done.saved()["buffers"]
    assert saved["norm.num_batches_tracked"].item() == done.coordinator.progress.step
    assert saved["norm.num_batches_tracked"].dtype == torch.int64
    assert saved["norm.running_mean"].abs().min() > 0
    assert not torch.equal(saved["norm.running_var"], torch.ones(8))
