"""Losses: means over the batch, and their options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from psopt.models import LOSSES, ModelError, build_loss, check_loss_kwargs


@pytest.fixture(autouse=True)
def _torch() -> None:
    torch.manual_seed(0)


def not_a_loss() -> int:
    return 3


def test_cross_entropy_is_the_default() -> None:
    output, y = torch.randn(6, 4), torch.arange(6) % 4
    want = -torch.log_softmax(output, 1)[torch.arange(6), y].mean()
    torch.testing.assert_close(build_loss()(output, y), want)
    torch.testing.assert_close(build_loss("cross_entropy")(output, y), want)


def test_label_smoothing() -> None:
    output, y = torch.randn(6, 4), torch.arange(6) % 4
    want = functional.cross_entropy(output, y, label_smoothing=0.1)
    loss = build_loss("cross_entropy", kwargs={"label_smoothing": 0.1})
    assert torch.equal(loss(output, y), want)


def test_mse_of_targets_and_of_labels() -> None:
    output, target = torch.randn(6, 4), torch.randn(6, 4)
    loss = build_loss("mse")
    torch.testing.assert_close(loss(output, target), ((output - target) ** 2).mean())
    y = torch.arange(6) % 4
    torch.testing.assert_close(loss(output, y), ((output - torch.eye(4)[y]) ** 2).mean())


def test_mse_never_broadcasts() -> None:
    """(batch, 1) against (batch,) floats would silently compare every pair."""
    with pytest.raises(ValueError, match=r"outputs \(6, 1\).*targets \(6, 2\)"):
        build_loss("mse")(torch.randn(6, 1), torch.randn(6, 2))
    with pytest.raises(ValueError, match=r"outputs \(6, 1\).*targets \(6,\)"):
        build_loss("mse")(torch.randn(6, 1), torch.randn(6))


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_loss_is_a_scalar_with_a_gradient(name: str) -> None:
    output = torch.randn(6, 4, requires_grad=True)
    value = build_loss(name)(output, torch.arange(6) % 4)
    value.backward()
    assert value.shape == ()
    assert output.grad is not None
    assert output.grad.isfinite().all()


def test_a_factory() -> None:
    loss = build_loss(None, "torch.nn:SmoothL1Loss", {"beta": 0.5})
    output, target = torch.randn(6, 4), torch.randn(6, 4)
    assert torch.equal(loss(output, target), functional.smooth_l1_loss(output, target, beta=0.5))


@pytest.mark.parametrize(
    ("name", "factory", "kwargs", "message"),
    [
        ("mse", None, {"size": 1}, "loss mse: unknown option 'size'; it takes none"),
        ("cross_entropy", None, {"label_smooting": 0.1}, "did you mean 'label_smoothing'"),
        ("cross_entropy", None, {"label_smoothing": True}, "option label_smoothing: Input"),
        ("crossentropy", None, {}, "unknown loss 'crossentropy'; did you mean 'cross_entropy'"),
        (None, "torch.nn:CrosEntropyLoss", {}, "did you mean 'CrossEntropyLoss'"),
        (
            None,
            "torch.nn.functional:l1_loss",
            {},
            "name a callable that returns the loss, a function of (output, y)",
        ),
        ("mse", "torch.nn:MSELoss", {}, "loss: give exactly one of name and factory"),
    ],
)
def test_wrong_options(
    name: str | None, factory: str | None, kwargs: dict[str, Any], message: str
) -> None:
    try:
        (problem,) = check_loss_kwargs(name, factory, kwargs)
    except ModelError as error:  # there is no such loss
        problem = str(error)
    assert message in problem
    with pytest.raises(ModelError, match=r"loss"):
        build_loss(name, factory, kwargs)


def test_no_problems() -> None:
    assert check_loss_kwargs(None, None, {}) == []
    assert check_loss_kwargs("cross_entropy", None, {"label_smoothing": 0}) == []


def test_values_out_of_range_and_factories_of_other_things() -> None:
    with pytest.raises(ModelError, match=r"label_smoothing must be in \[0, 1\)"):
        build_loss("cross_entropy", kwargs={"label_smoothing": 1.0})
    with pytest.raises(ModelError, match="returned int, expected a function of"):
        build_loss(None, f"{__name__}:not_a_loss")
