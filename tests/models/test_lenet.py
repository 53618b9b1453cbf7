"""LeNet-5 against the textbook's: values, gradients, second derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from psopt.models import build_model
from psopt.models.lenet import LeNet5

DIGITS: dict[str, Any] = {"input_shape": (1, 28, 28), "outputs": 10}
COLOUR: dict[str, Any] = {"input_shape": (3, 32, 32), "outputs": 10}


@pytest.fixture(autouse=True)
def _torch() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def textbook(model: LeNet5, x: Tensor, activation: Any, pool: Any) -> Tensor:
    x = pool(activation(functional.conv2d(x, model.c1.weight, model.c1.bias, padding=2)), 2)
    x = pool(activation(functional.conv2d(x, model.c3.weight, model.c3.bias)), 2)
    return model.output(activation(model.f6(activation(model.c5(x.flatten(1))))))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("pooling", ["max", "average"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 12, 17)])
def test_lenet_is_the_textbooks(activation: str, pooling: str, shape: tuple[int, ...]) -> None:
    kwargs = {"activation": activation, "pooling": pooling}
    model = build_model("lenet5", kwargs=kwargs, input_shape=shape, outputs=10, seed=1).double()
    assert isinstance(model, LeNet5)
    pool = functional.max_pool2d if pooling == "max" else functional.avg_pool2d
    x = torch.randn(5, *shape, dtype=torch.float64, requires_grad=True)
    results = []
    for output in (model(x), textbook(model, x, getattr(torch, activation), pool)):
        loss = functional.cross_entropy(output, torch.arange(5))
        inputs = [x, *model.parameters()]
        gradients = torch.autograd.grad(loss, inputs, create_graph=True)
        # The product of the Hessian and a vector, which the second-order schemes ask for.
        generator = torch.Generator().manual_seed(3)
        vectors = [torch.randn(g.shape, generator=generator, dtype=g.dtype) for g in gradients]
        dot = sum(((g * v).sum() for g, v in zip(gradients, vectors, strict=True)), x.new_zeros(()))
        second = torch.autograd.grad(dot, inputs, allow_unused=True, materialize_grads=True)
        results.append([output, *gradients, *second])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_lenet_off_the_cpu_has_the_same_shapes() -> None:
    with torch.device("meta"):
        model = LeNet5(**DIGITS)
        assert model(torch.empty(5, 1, 28, 28)).shape == (5, 10)


def test_lenet_learns() -> None:
    model = build_model("lenet5", **DIGITS, seed=1)
    y = torch.arange(40) % 10
    x = torch.randn(10, 1, 28, 28)[y] + 0.1 * torch.randn(40, 1, 28, 28)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(40):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model(x).argmax(dim=1) == y).all()
