"""The models a job can name, and building the one it asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from psopt.models.factory import ModelError, call, kwargs_problems, load, refuse
from psopt.models.lenet import LeNet5
from psopt.models.linear import Linear, logistic
from psopt.models.mlp import Mlp
from psopt.models.resnet import resnet18, resnet101

ZOO: dict[str, Callable[..., nn.Module]] = {
    "linear": Linear,
    "softmax": Linear,
    "logistic": logistic,
    "mlp": Mlp,
    "lenet5": LeNet5,
    "resnet18": resnet18,
    "resnet101": resnet101,
}

_FROM_DATASET = ("input_shape", "outputs")


def build_model(
    name: str | None = None,
    factory: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    input_shape: tuple[int, ...],
    outputs: int,
    seed: int,
) -> nn.Module:
    """The model of a job, on the CPU, with initial parameters that depend on the seed alone.

    Args:
        name: one of `ZOO`.
        factory: "package.module:attribute" of a callable that returns a torch.nn.Module; it is
            given input_shape and outputs if it has parameters of those names.
        kwargs: the options of either.
        input_shape: of one sample.
        outputs: number of classes, or width of the regression targets.
        seed: of the initial parameters; torch's own generator is left as it was.

    Raises:
        ModelError: no such model or factory, its options are wrong, or it is no module.
    """
    what, make = load("model", ZOO, name, factory)
    refuse(kwargs_problems(what, make, kwargs or {}, given=_given(make), strict=factory is None))
    sizes = {"input_shape": tuple(input_shape), "outputs": outputs}
    options = {**(kwargs or {}), **{key: sizes[key] for key in _given(make)}}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = call(what, make, options)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{what} returned {type(model).__name__}, expected a torch.nn.Module")
    return model


def check_kwargs(name: str | None, factory: str | None, kwargs: Mapping[str, Any]) -> list[str]:
    """What is wrong with the options of a model, one message a problem; empty when all is well.

    Raises:
        ModelError: no such model or factory.
    """
    what, make = load("model", ZOO, name, factory)
    return kwargs_problems(what, make, kwargs, given=_given(make), strict=factory is None)


def _given(make: Callable[..., Any]) -> tuple[str, ...]:
    """Which of the dataset's sizes the callable takes, by name."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return ()
    return tuple(key for key in _FROM_DATASET if key in parameters)
