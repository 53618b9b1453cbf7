"""Loss functions: the mean over a batch of what the model's output costs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional

from psopt.models.factory import ModelError, call, kwargs_problems, load, refuse

Loss = Callable[[Tensor, Tensor], Tensor]

_NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD
_OUTPUT = re.compile(r"(y_?)?(outputs?|out|inputs?|pred\w*|logits?|scores?|hat)", re.IGNORECASE)
_TARGET = re.compile(r"y|(y_?)?(true|targets?|labels?)", re.IGNORECASE)


def _cross_entropy(*, label_smoothing: float = 0.0) -> Loss:
    """Cross entropy of logits (batch, classes) and labels (batch,) int64."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be in [0, 1), not {label_smoothing}")

    def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(output, y, label_smoothing=label_smoothing)

    return cross_entropy


def _mse() -> Loss:
    """Mean square difference of outputs and targets, both (batch, width); labels become one-hot."""

    def mse(output: Tensor, y: Tensor) -> Tensor:
        if not y.is_floating_point():
            y = functional.one_hot(y, output.shape[1]).to(output.dtype)
        if output.shape != y.shape:  # torch would compare every output with every target
            raise ValueError(
                f"mse: outputs {tuple(output.shape)} and targets {tuple(y.shape)} must be alike; "
                "give the model one output a target"
            )
        return functional.mse_loss(output, y)

    return mse


def _logistic() -> Loss:
    """Mean of log(1 + exp(-z)) where the label is 1, and of log(1 + exp(z)) where it is 0.

    z is (batch, 1) or (batch,), the labels (batch,) int64, each 0 or 1.
    """

    def logistic(output: Tensor, y: Tensor) -> Tensor:
        if y.is_floating_point() or y.ndim != 1:
            raise ValueError(
                f"logistic: y is {y.dtype} of shape {tuple(y.shape)}; it must be class labels "
                "(batch,), 0 or 1"
            )
        if output.shape not in ((len(y), 1), (len(y),)):
            raise ValueError(
                f"logistic: outputs {tuple(output.shape)} must be one logit a sample, "
                f"({len(y)}, 1); take model logistic, or loss cross_entropy"
            )
        sign = (2 * y - 1).to(output.dtype)
        return -functional.logsigmoid(sign * output.reshape(-1)).mean()

    return logistic


LOSSES: dict[str, Callable[..., Loss]] = {
    "cross_entropy": _cross_entropy,
    "mse": _mse,
    "logistic": _logistic,
}


def build_loss(
    name: str | None = None, factory: str | None = None, kwargs: Mapping[str, Any] | None = None
) -> Loss:
    """The loss of a job.

    Args:
        name: one of `LOSSES`; with no name and no factory it is "cross_entropy".
        factory: "package.module:attribute" of a callable that returns a loss.
        kwargs: the options of either.

    Returns:
        A function of (output, y) that gives the mean over the batch, a 0-d tensor.

    Raises:
        ModelError: no such loss or factory, or its options are wrong.
    """
    what, make = _find(name, factory)
    refuse(kwargs_problems(what, make, kwargs or {}, strict=factory is None))
    loss = call(what, make, kwargs or {})
    if not callable(loss):
        raise ModelError(
            f"{what} returned {type(loss).__name__}, expected a function of (output, y)"
        )
    made: Loss = loss
    return made


def check_loss_kwargs(
    name: str | None, factory: str | None, kwargs: Mapping[str, Any]
) -> list[str]:
    """What is wrong with the options of a loss, one message a problem; empty when all is well.

    Raises:
        ModelError: no such loss or factory.
    """
    what, make = _find(name, factory)
    problems = kwargs_problems(what, make, kwargs, strict=factory is None)
    if factory and not kwargs and _is_a_loss(make):
        return [f"{what}: name a callable that returns the loss, a function of (output, y)"]
    return problems


def _is_a_loss(make: Callable[..., Any]) -> bool:
    """Whether ``make`` looks like a function of (output, y) rather than like one that returns it."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is _NAMED]
    return len(needed) == 2 and bool(_OUTPUT.fullmatch(needed[0]) and _TARGET.fullmatch(needed[1]))


def _find(name: str | None, factory: str | None) -> tuple[str, Callable[..., Any]]:
    return load("loss", LOSSES, name if name or factory else "cross_entropy", factory)
