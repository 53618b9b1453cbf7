"""The model zoo: shapes, sizes, initial parameters, and options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from psopt.models import ZOO, build_model

DIGITS: dict[str, Any] = {"input_shape": (1, 28, 28), "outputs": 10}
COLOUR: dict[str, Any] = {"input_shape": (3, 32, 32), "outputs": 10}


@pytest.fixture(autouse=True)
def _torch() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "sizes", "count"),
    [
        ("softmax", DIGITS, 7_850),
        ("linear", DIGITS, 7_850),
        ("logistic", {**DIGITS, "outputs": 2}, 785),
        ("mlp", DIGITS, 235_146),
        ("lenet5", DIGITS, 61_706),
        ("resnet18", COLOUR, 11_173_962),
        ("resnet101", COLOUR, 42_512_970),
    ],
)
def test_parameter_counts(name: str, sizes: dict[str, Any], count: int) -> None:
    with torch.device("meta"):
        model = ZOO[name](**sizes)
    assert parameters(model) == count


@pytest.mark.parametrize("name", ["linear", "softmax", "mlp", "lenet5", "resnet18"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 13, 21)])
def test_any_image_shape_and_width(name: str, shape: tuple[int, ...]) -> None:
    model = build_model(name, input_shape=shape, outputs=7, seed=1)
    output = model(torch.randn(4, *shape))
    assert output.shape == (4, 7)
    functional.cross_entropy(output, torch.arange(4)).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_resnet101_runs_on_a_small_image() -> None:
    model = build_model("resnet101", input_shape=(1, 8, 8), outputs=2, seed=1).eval()
    assert model(torch.randn(1, 1, 8, 8)).shape == (1, 2)


@pytest.mark.parametrize("name", ["softmax", "mlp", "lenet5", "resnet18"])
def test_the_seed_alone_decides(name: str) -> None:
    one = build_model(name, **DIGITS, seed=1).state_dict()
    torch.rand(3)
    two = build_model(name, **DIGITS, seed=1).state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    if name != "softmax":
        other = build_model(name, **DIGITS, seed=2).state_dict()
        assert any(not torch.equal(one[key], other[key]) for key in one)


def test_building_does_not_disturb_the_generator() -> None:
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    build_model("mlp", **DIGITS, seed=1)
    assert torch.equal(torch.rand(3), want)


@pytest.mark.parametrize("name", ["linear", "softmax", "logistic"])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_models(name: str, bias: bool) -> None:
    """They start at zero, and are W x, with b or without."""
    outputs = 1 if name == "logistic" else 2
    model = build_model(name, kwargs={"bias": bias}, input_shape=(2, 3), outputs=2, seed=1)
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    assert shapes == {"linear.weight": (outputs, 6)} | ({"linear.bias": (outputs,)} if bias else {})
    assert not any(parameter.any() for parameter in model.parameters())
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(4, 2, 3)
    expected = x.reshape(4, 6) @ model.linear.weight.T + (model.linear.bias if bias else 0)
    torch.testing.assert_close(model(x), expected)


def test_mlp_options() -> None:
    model = build_model("mlp", kwargs={"hidden": [5, 4, 3], "dropout": 0.5}, **DIGITS, seed=1)
    widths = [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert widths == [5, 4, 3, 10]
    assert sum(isinstance(layer, nn.Dropout) for layer in model.modules()) == 3
    linear = build_model("mlp", kwargs={"hidden": []}, **DIGITS, seed=1)
    assert parameters(linear) == 7_850


def test_resnet_shapes_follow_table_1() -> None:
    model = build_model("resnet18", **COLOUR, seed=1).eval()
    x = model.stem(torch.randn(2, 3, 32, 32))
    sizes = []
    for stage in model.stages:
        x = stage(x)
        sizes.append(tuple(x.shape[1:]))
    assert sizes == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
