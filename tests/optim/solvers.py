"""The solvers that the contract is tested on, and what the tests do with one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from psopt.optim.cg import CG, Beta, CGOptions
from psopt.optim.descent import Descent
from psopt.optim.lbfgs import LBFGS, LBFGSOptions
from psopt.optim.tree import flatten_tree, unflatten_tree

Oracle = Callable[[Tensor], tuple[float, Tensor]]
Make = Callable[..., Descent]


def lbfgs(start: Tensor, **options: Any) -> Descent:
    return LBFGS(start, replace(LBFGSOptions(), **options))


def damped_lbfgs(start: Tensor, **options: Any) -> Descent:
    return LBFGS(start, replace(LBFGSOptions(memory=3, damp=True), **options))


def pr_plus(start: Tensor, **options: Any) -> Descent:
    return CG(start, replace(CGOptions(), **options))


def hager_zhang(start: Tensor, **options: Any) -> Descent:
    return CG(start, replace(CGOptions(beta=Beta.HAGER_ZHANG), **options))


SOLVERS: dict[str, Make] = {
    "L-BFGS": lbfgs,
    "L-BFGS damped": damped_lbfgs,
    "CG PR+": pr_plus,
    "CG Hager-Zhang": hager_zhang,
}


def saved(solver: Descent) -> Any:
    """The solver's state as it comes out of a file."""
    structure, tensors = flatten_tree(solver.state())
    text = json.dumps(structure, allow_nan=False)
    return unflatten_tree(json.loads(text), [tensor.clone() for tensor in tensors])


def run(solver: Descent, oracle: Oracle, at_most: int = 100_000) -> list[float]:
    """The losses told until the end."""
    losses = []
    while not solver.done and len(losses) < at_most:
        point = solver.ask()
        assert not bool(torch.isnan(point).any())
        loss, gradient = oracle(point)
        losses.append(loss)
        solver.tell(loss, gradient)
    return losses


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def same(one: Any, other: Any) -> bool:
    """Equal trees, their tensors bit for bit."""
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and bits(one) == bits(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and type(one) is type(other)
