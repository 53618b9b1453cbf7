"""Losses: means over the batch, and their options."""

from __future__ import annotations

import math
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


@pytest.mark.parametrize("shape", [(5, 1), (5,)])
def test_logistic(shape: tuple[int, ...]) -> None:
    """The mean of log(1 + exp(-z)) for label 1 and log(1 + exp(z)) for 0, far from zero too."""
    z, y = [0.0, 2.0, -3.0, 800.0, -50.0], [1, 0, 1, 1, 0]
    output = torch.tensor(z, dtype=torch.float64).reshape(shape).requires_grad_()
    value = build_loss("logistic")(output, torch.tensor(y))
    value.backward()
    costs = [
        math.log1p(math.exp(-a)) if b else math.log1p(math.exp(a))
        for a, b in zip(z, y, strict=True)
    ]
    assert value.item() == pytest.approx(sum(costs) / 5, rel=1e-15)
    sigmoid = [1 / (1 + math.exp(-a)) for a in z]
    slopes = [(p - b) / 5 for p, b in zip(sigmoid, y, strict=True)]
    assert output.grad is not None
    assert output.grad.shape == shape
    assert output.grad.reshape(-1).tolist() == pytest.approx(slopes, rel=1e-14, abs=1e-300)


def test_logistic_of_one_sample_is_precise_far_from_zero() -> None:
    for z, label in ((50.0, 1), (-50.0, 0)):
        value = build_loss("logistic")(torch.tensor([[z]]).double(), torch.tensor([label]))
        assert value.item() == pytest.approx(math.log1p(math.exp(-50)), rel=1e-14)


@pytest.mark.parametrize(
    ("output", "y", "message"),
    [
        ((6, 2), torch.arange(6) % 2, r"outputs \(6, 2\) must be one logit a sample, \(6, 1\)"),
        ((5, 1), torch.arange(6) % 2, r"outputs \(5, 1\) must be one logit"),
        ((), torch.arange(1), r"outputs \(\) must be one logit"),
        (
            (6, 1),
            torch.rand(6, 1),
            r"y is torch.float32 of shape \(6, 1\); it must be class labels",
        ),
        ((6, 1), torch.zeros(6, 1, dtype=torch.int64), r"shape \(6, 1\); it must be class labels"),
    ],
)
def test_logistic_takes_one_logit_and_labels(
    output: tuple[int, ...], y: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build_loss("logistic")(torch.zeros(output), y)


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_loss_is_a_scalar_with_a_gradient(name: str) -> None:
    width = 1 if name == "logistic" else 4
    output = torch.randn(6, width, requires_grad=True)
    value = build_loss(name)(output, torch.arange(6) % max(2, width))
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


def quantile(low: float, high: float) -> Any:
    return lambda output, y: output.sum()


def weighed(target_weight: float, label: str) -> Any:
    return lambda output, y: output.sum()


def error(y_pred: torch.Tensor, y_true: torch.Tensor, power: float = 2.0) -> torch.Tensor:
    return (y_pred - y_true).abs().pow(power).mean()


@pytest.mark.parametrize(
    ("make", "names"), [("quantile", ("low", "high")), ("weighed", ("target_weight", "label"))]
)
def test_options_that_a_factory_needs_are_listed(make: str, names: tuple[str, str]) -> None:
    """Two of them do not make a loss of it."""
    factory = f"{__name__}:{make}"
    assert check_loss_kwargs(None, factory, {}) == [
        f"loss factory {factory}: option {name!r} is missing from kwargs" for name in names
    ]


@pytest.mark.parametrize(
    "factory",
    [
        *(f"torch.nn.functional:{name}" for name in ("l1_loss", "mse_loss", "cross_entropy")),
        f"{__name__}:error",
    ],
)
def test_a_loss_that_is_named_itself(factory: str) -> None:
    (problem,) = check_loss_kwargs(None, factory, {})
    assert "name a callable that returns the loss, a function of (output, y)" in problem


def test_no_problems() -> None:
    assert check_loss_kwargs(None, None, {}) == []
    assert check_loss_kwargs("cross_entropy", None, {"label_smoothing": 0}) == []


def test_values_out_of_range_and_factories_of_other_things() -> None:
    with pytest.raises(ModelError, match=r"label_smoothing must be in \[0, 1\)"):
        build_loss("cross_entropy", kwargs={"label_smoothing": 1.0})
    with pytest.raises(ModelError, match="returned int, expected a function of"):
        build_loss(None, f"{__name__}:not_a_loss")
