"""First-order updates by ``torch.optim`` on views of the flat parameters.

One object is optimizer, schedule and gradient clipping together: what the server does with a
gradient. It is used by the parameter server, and by every worker while workers run synchronous
rounds among themselves.

An optimizer that treats every element by itself is given runs of adjacent parameters as one vector:
the same bits as parameter by parameter (a test compares them), for the price of one parameter.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from psopt.config import OptimizerConfig, SchedulerConfig
from psopt.config.eager_optim import leave_compiler_out, plain_step

ELEMENTWISE = {
    *("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop"),
    *("Rprop", "SGD"),
}
"""Optimizers of torch whose step on an element depends on that element only."""

_Piece = tuple[int, int, tuple[int, ...]]
"""First and last offset in the flat vector, and the shape that the optimizer sees."""


class FirstOrder:
    """Applies gradients to ``flat`` with any optimizer and schedule of torch.

    Args:
        flat: all parameters, shape (n,); changed in place by ``step``.
        shapes: shape of each parameter by name, in their order in ``flat``.
        optimizer: name, options and parameter groups. A parameter belongs to the first group whose
            glob matches its name, else to the default group.
        scheduler: stepped once a step, or once an epoch; it never sees how many workers there are.
        clip_norm: the gradient is scaled down to this Euclidean norm when it is longer.

    Raises:
        ValueError: a group's glob matches no parameter, or the optimizer refuses a parameter.
    """

    def __init__(
        self,
        flat: Tensor,
        shapes: Mapping[str, torch.Size],
        optimizer: OptimizerConfig,
        scheduler: SchedulerConfig | None = None,
        clip_norm: float | None = None,
    ) -> None:
        self._sizes = [shape.numel() for shape in shapes.values()]
        self._clip_norm = clip_norm
        self._pieces: list[tuple[Tensor, _Piece]] = []
        merge = optimizer.name in ELEMENTWISE
        groups = []
        for options, places in _groups(shapes, optimizer):
            pieces = list(_merged(places)) if merge else places
            tensors = [flat[first:end].view(shape) for first, end, shape in pieces]
            self._pieces += zip(tensors, pieces, strict=True)
            groups.append({"params": tensors, **options})
        leave_compiler_out()
        self._optimizer: torch.optim.Optimizer = optimizer.cls(groups, **optimizer.options)
        self._step = plain_step(self._optimizer)
        self._per_epoch = scheduler is not None and scheduler.per == "epoch"
        self._scheduler = scheduler.cls(self._optimizer, **scheduler.options) if scheduler else None
        self._epoch = 0

    @property
    def lr(self) -> float:
        """Learning rate of the first parameter group."""
        return float(self._optimizer.param_groups[0]["lr"])

    @torch.no_grad()
    def step(self, gradient: Tensor, *, epoch: int, rate: float = 1.0) -> None:
        """One update of the parameters.

        Args:
            gradient: shape (n,), as the flat parameters; clipping changes it in place.
            epoch: epochs that are over, for a schedule that counts epochs.
            rate: factor on the learning rate for this step only.
        """
        if self._clip_norm is not None:
            norm = torch.nn.utils.get_total_norm(torch.split(gradient, self._sizes))
            gradient.mul_(torch.clamp(self._clip_norm / (norm + 1e-6), max=1.0))
        for tensor, (first, end, shape) in self._pieces:
            tensor.grad = gradient[first:end].view(shape)
        if self._scheduler is not None and self._per_epoch:
            self._advance(self._scheduler, epoch)
        self._step_at(rate)
        if self._scheduler is not None and not self._per_epoch:
            self._scheduler.step()

    def _advance(self, scheduler: LRScheduler, epoch: int) -> None:
        """Bring a schedule that counts epochs to ``epoch``."""
        with warnings.catch_warnings():
            # It may be ahead of the first step here: after a resume, or when all of epoch 0 was refused.
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
            while self._epoch < epoch:
                scheduler.step()
                self._epoch += 1

    def _step_at(self, rate: float) -> None:
        if rate == 1.0:
            self._step()
            return
        groups = self._optimizer.param_groups
        rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * rate
        self._step()
        for group, lr in zip(groups, rates, strict=True):
            group["lr"] = lr

    def state(self) -> dict[str, Any]:
        """Everything that a resume needs: moments, group options, schedule position (live tensors)."""
        state = self._optimizer.state_dict()
        return {
            "state": {str(index): dict(entry) for index, entry in state["state"].items()},
            "groups": [_plain(group) for group in state["param_groups"]],
            "scheduler": _plain(self._scheduler.state_dict()) if self._scheduler else {},
            "epoch": self._epoch,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` stands; its tensors are copied.

        Raises:
            ValueError: the state belongs to other parameter groups.
        """
        own = self._optimizer.state_dict()["param_groups"]
        groups = [_like(mine, given) for mine, given in zip(own, state["groups"], strict=True)]
        entries = {int(index): dict(entry) for index, entry in state["state"].items()}
        self._optimizer.load_state_dict({"state": entries, "param_groups": groups})
        params = [param for group in self._optimizer.param_groups for param in group["params"]]
        for index, given in entries.items():
            entry = self._optimizer.state[params[index]]
            for key, value in given.items():
                if isinstance(value, Tensor):  # else it had the parameter's dtype, and was no copy
                    entry[key] = value.to(entry[key].device, copy=True)
        if self._scheduler is not None:
            self._scheduler.load_state_dict(
                _like(self._scheduler.state_dict(), dict(state["scheduler"]))
            )
        self._epoch = int(state["epoch"])


def _groups(
    shapes: Mapping[str, torch.Size], optimizer: OptimizerConfig
) -> Iterator[tuple[dict[str, Any], list[_Piece]]]:
    """Options and pieces of each parameter group: the default one first, then one a glob."""
    rest: dict[str, _Piece] = {}
    offset = 0
    for name, shape in shapes.items():
        rest[name] = (offset, offset + shape.numel(), tuple(shape))
        offset += shape.numel()
    chosen = []
    for group in optimizer.groups:
        taken = [rest.pop(name) for name in list(rest) if fnmatchcase(name, group.match)]
        if not taken:
            raise ValueError(
                f"optimizer group {group.match!r} matches no parameter that is left; "
                f"the model's are: {', '.join(shapes)}"
            )
        chosen.append((group.options, taken))
    if rest:
        yield {}, list(rest.values())
    yield from chosen


def _merged(pieces: list[_Piece]) -> Iterator[_Piece]:
    """Adjacent pieces as one, seen as a vector."""
    first, end = pieces[0][0], pieces[0][0]
    for start, stop, _ in pieces:
        if start != end:
            yield first, end, (end - first,)
            first = start
        end = stop
    yield first, end, (end - first,)


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that are plain data: callables and references to the optimizer are rebuilt, not saved."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in state.items()
        if _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _like(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with tuples where ``own`` has them: saved state knows lists only."""
    return {
        key: tuple(value) if isinstance(own.get(key), tuple) and isinstance(value, list) else value
        for key, value in given.items()
    }
