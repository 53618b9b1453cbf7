"""Options of models, and users' own factories."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from psopt.models import ModelError, build_model, check_kwargs

DIGITS: dict[str, Any] = {"input_shape": (1, 28, 28), "outputs": 10}
COLOUR: dict[str, Any] = {"input_shape": (3, 32, 32), "outputs": 10}


def plain(value: int = 1, *, outputs: int) -> nn.Module:
    """A user's factory that takes one of the two sizes."""
    return nn.Linear(value, outputs)


def sizeless() -> nn.Module:
    """A user's factory that takes none."""
    return nn.Linear(2, 3)


def needy(width: int, **rest: Any) -> nn.Module:
    """A user's factory with a needed option and free ones."""
    return nn.Linear(width, len(rest))


def not_a_module() -> str:
    return "model"


def positional(input_shape: tuple[int, ...], outputs: int, depth: int = 1) -> nn.Module:
    return nn.Sequential(*[nn.Linear(input_shape[0], outputs)] * depth)


class Holder:
    factory = staticmethod(sizeless)
    number = 3


HERE = __name__


@pytest.mark.parametrize(
    ("name", "kwargs", "messages"),
    [
        ("mlp", {"hidden": [3], "dropout": 0}, []),
        ("mlp", {"hiden": [3]}, ["model mlp: unknown option 'hiden'; did you mean 'hidden'?"]),
        (
            "mlp",
            {"zzz": 1, "dropout": "x", "outputs": 3},
            [
                "model mlp: unknown option 'zzz'; valid: dropout, hidden",
                "model mlp: outputs comes from the dataset; remove it from kwargs",
                "model mlp: option dropout: Input should be a valid number, not 'x'",
            ],
        ),
        ("mlp", {"hidden": [2.0]}, ["model mlp: option hidden: Input should be a valid integer"]),
        ("mlp", {"hidden": 256}, ["model mlp: option hidden: "]),
        ("softmax", {"bias": False}, []),
        (
            "softmax",
            {"bais": False},
            ["model softmax: unknown option 'bais'; did you mean 'bias'?"],
        ),
        ("linear", {"bias": 1}, ["model linear: option bias: Input should be a valid boolean"]),
        ("logistic", {"outputs": 2}, ["model logistic: outputs comes from the dataset; remove it"]),
        ("lenet5", {"activation": "swish"}, ["model lenet5: option activation: Input should be "]),
        ("lenet5", {"pooling": True}, ["model lenet5: option pooling: Input should be "]),
        ("lenet", {}, ["unknown model 'lenet'; did you mean 'lenet5'?"]),
        ("transformer", {}, ["unknown model 'transformer'; valid: lenet5, linear, logistic, "]),
    ],
)
def test_options_are_checked(name: str, kwargs: dict[str, Any], messages: list[str]) -> None:
    try:
        problems = check_kwargs(name, None, kwargs)
    except ModelError as error:  # there is no such model
        problems = [str(error)]
    assert len(problems) == len(messages)
    for problem, message in zip(problems, messages, strict=True):
        assert problem.startswith(message)
    if problems:
        with pytest.raises(ModelError) as error:
            build_model(name, kwargs=kwargs, **DIGITS, seed=1)
        assert str(error.value) == "; ".join(problems)


@pytest.mark.parametrize(
    ("name", "kwargs", "sizes", "message"),
    [
        ("mlp", {"hidden": [0]}, DIGITS, "hidden widths must be at least 1"),
        ("mlp", {"dropout": 1.0}, DIGITS, r"dropout must be in \[0, 1\)"),
        ("lenet5", {}, {"input_shape": (784,), "outputs": 10}, "lenet5 .*needs images"),
        ("lenet5", {}, {"input_shape": (1, 11, 28), "outputs": 10}, "height >= 12"),
        ("resnet18", {}, {"input_shape": (784,), "outputs": 10}, "resnet18 .*needs images"),
        (
            "logistic",
            {},
            DIGITS,
            "two classes apart, and the data set has 10.*data.classes.*softmax",
        ),
        ("logistic", {}, {**DIGITS, "outputs": 1}, "the data set has 1 outputs"),
    ],
)
def test_values_out_of_range(
    name: str, kwargs: dict[str, Any], sizes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        build_model(name, kwargs=kwargs, **sizes, seed=1)


@pytest.mark.parametrize(
    ("attribute", "kwargs", "shape"),
    [
        ("plain", {}, (10, 1)),
        ("plain", {"value": 4}, (10, 4)),
        ("sizeless", {}, (3, 2)),
        ("needy", {"width": 5, "a": 1, "b": 2}, (2, 5)),
        ("positional", {}, (10, 1)),
        ("Holder.factory", {}, (3, 2)),
    ],
)
def test_factories_get_the_sizes_they_take(
    attribute: str, kwargs: dict[str, Any], shape: tuple[int, int]
) -> None:
    path = f"{HERE}:{attribute}"
    assert check_kwargs(None, path, kwargs) == []
    one, two = (build_model(None, path, kwargs, **DIGITS, seed=1) for _ in range(2))
    weights = [next(model.parameters()) for model in (one, two)]
    assert weights[0].shape == shape
    assert torch.equal(weights[0], weights[1])


@pytest.mark.parametrize(
    ("path", "kwargs", "message"),
    [
        ("plain", {}, 'write it as "package.module:attribute"'),
        (f"{HERE}:", {}, 'write it as "package.module:attribute"'),
        ("no_such_module:f", {}, "cannot import no_such_module: .*PYTHONPATH"),
        (f"{HERE}:plian", {}, "has no plian; did you mean 'plain'"),
        (f"{HERE}:Holder.number", {}, "is int, expected a callable"),
        (f"{HERE}:plain", {"input_shape": 3}, "unknown option 'input_shape'; valid: value"),
        (f"{HERE}:plain", {"outputs": 3}, "outputs comes from the dataset"),
        (f"{HERE}:needy", {}, "option 'width' is missing from kwargs"),
        (f"{HERE}:not_a_module", {}, "returned str, expected a torch.nn.Module"),
        (f"{HERE}:plain", {"value": "x"}, "plain with {'value': 'x', 'outputs': 10}: "),
    ],
)
def test_wrong_factories(path: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build_model(None, path, kwargs, **DIGITS, seed=1)


@pytest.mark.parametrize("both", [True, False])
def test_exactly_one_of_name_and_factory(both: bool) -> None:
    pair = ("mlp", f"{HERE}:plain") if both else (None, None)
    with pytest.raises(ModelError, match="exactly one of name and factory"):
        check_kwargs(*pair, {})
    with pytest.raises(ModelError, match="exactly one of name and factory"):
        build_model(*pair, **DIGITS, seed=1)
