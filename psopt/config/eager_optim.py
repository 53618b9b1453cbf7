"""torch.optim without the compiler, which training that is never compiled has no use for.

Several methods of ``Optimizer`` import ``torch._dynamo`` (and sympy with it) at their first call, only
to ask it to leave them alone: about two seconds of every process. What it would answer can be noted
on the methods beforehand. ``Optimizer.step`` asks on each call, below hooks for the profiler and a
switch of the grad mode; under ``no_grad`` its plain body does the same to the parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

_NOTED = "__dynamo_disable"  # where torch itself keeps the answer, after the first call


def leave_compiler_out() -> None:
    """Spare this process the import. Call it before the first optimizer is made; twice does no harm."""
    for method in vars(Optimizer).values():
        body = getattr(method, "__wrapped__", None)
        if body is not None and not hasattr(body, _NOTED):
            setattr(body, _NOTED, body)


def plain_step(optimizer: Optimizer) -> Callable[[], Any]:
    """What ``optimizer.step()`` does to the parameters, to be called under ``no_grad``."""
    if optimizer.defaults.get("differentiable"):
        return optimizer.step
    body = inspect.unwrap(type(optimizer).step)

    def step() -> None:
        body(optimizer)
        optimizer._opt_called = True  # type: ignore[attr-defined]  # a schedule asks for it

    return step
