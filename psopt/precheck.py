"""Whether a job can be trained, and go on from a checkpoint: looked for before a run begins."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

import torch

from psopt.config import value_json
from psopt.data.check import check as check_values
from psopt.data.errors import DataError
from psopt.job import Parts
from psopt.models.factory import ModelError
from psopt.models.flat import FlatModel
from psopt.optim.finite import all_finite
from psopt.schemes.base import statistics_tickets
from psopt.schemes.batch import SolverScheme
from psopt.schemes.shards import ShardScheme


def check(parts: Parts, workers: int | None = None) -> None:
    """Look for what would go wrong later: values of the data set, shapes of output and loss.

    Args:
        parts: what is going to be trained.
        workers: of a run that starts now.

    Raises:
        DataError, ModelError: with what is wrong and the remedy.
    """
    check_values(parts.data)
    _check_parts(parts)
    _check_buffers(parts.model)
    try:
        parts.optimizer(parts.model)
    except ValueError as error:
        name = parts.config.optimizer.name if parts.config.optimizer else "of the scheme"
        raise ModelError(f"optimizer {name} does not fit the model: {error}") from error
    for rows in _batches(parts, workers):
        _try_gradient(parts, rows)


def _batches(parts: Parts, workers: int | None) -> list[Any]:
    """Two rows of a batch that will be computed, and one where there is a batch of one."""
    scheme, plan = parts.config.scheme, parts.tickets().plan(0)
    sizes = scheme.batch_sizes(plan, workers)
    if parts.model.buffers and not scheme.needs_optimizer:
        sizes |= {plan.count(ticket.batch) for ticket in statistics_tickets(plan)}
    rows = plan.rows(0)
    return [rows[:size] for size in sorted({min(size, 2) for size in sizes}, reverse=True)]


def _check_parts(parts: Parts) -> None:
    """Whether the samples can be cut into the scheme's mini-batches or shards.

    Raises:
        DataError: there are too few, or no labels to cut by or to be right about.
    """
    scheme, data = parts.config.scheme, parts.data
    if data.regression and parts.config.stop.test_accuracy is not None:
        raise DataError(
            f"{data.path} has targets instead of class labels, so there is no accuracy to stop at: use "
            "stop.test_loss or stop.objective"
        )
    if isinstance(scheme, SolverScheme) and (scheme.batch or 1) > len(data.train):
        raise DataError(
            f"{data.path} has {len(data.train)} training samples: scheme.batch may be no more; null "
            "takes them all"
        )
    if not isinstance(scheme, ShardScheme):
        return
    if (scheme.shards or 1) > len(data.train):
        raise DataError(
            f"{data.path} has {len(data.train)} training samples: scheme.shards may be no more"
        )
    if scheme.cut == "by_label" and data.regression:
        raise DataError(f"{data.path} has targets instead of class labels: use scheme.cut: iid")


def _check_buffers(model: FlatModel) -> None:
    """Buffers that travel are statistics and counters, and an update of them has to be finite.

    Raises:
        ModelError: one is infinite or not a number before the first update.
    """
    for group in model.buffers:
        for (_, _, name), view in zip(group.places, group.views, strict=True):
            if not all_finite([view]):
                raise ModelError(
                    f"the model's buffer {name} is not finite as it is made: a constant, such as a "
                    "mask, is registered with persistent=False"
                )


def _try_gradient(parts: Parts, rows: Any) -> None:
    """One gradient on a copy of the model, as a worker computes it.

    Raises:
        ModelError: it fails, or is none.
    """
    x, y = map(parts.model.widen, parts.data.train.batch(rows))
    where = f"{parts.data.path} (x of shape {tuple(x.shape)}, y of shape {tuple(y.shape)})"
    with torch.random.fork_rng(devices=[]):
        try:
            output = copy.deepcopy(parts.model.module).train()(x)
            _check_width(parts, output, y)
            loss = parts.loss(output, y)
            _check_loss(loss)
            torch.autograd.backward(loss)
        except ModelError:
            raise
        except (Exception, SystemExit) as error:
            raise ModelError(
                f"the model or the loss fails on the first samples of {where}: "
                f"{type(error).__name__}: {error}"
            ) from error


def _check_width(parts: Parts, output: torch.Tensor, y: torch.Tensor) -> None:
    """The model has an output a class; or one logit for two classes, where the loss takes that.

    Raises:
        ModelError: it has fewer.
    """
    classes, loss = parts.data.outputs, parts.config.loss.name
    if y.ndim != 1 or (output.ndim != 2 and loss != "logistic"):
        return
    width = output.shape[1] if output.ndim == 2 else 1
    one_logit = width == 1 and classes == 2
    if width >= classes or (one_logit and loss in ("logistic", None)):
        return
    remedy = "; one logit for two classes goes with loss logistic" if one_logit else ""
    raise ModelError(
        f"the model has {width} outputs, but the labels of {parts.data.path} go up to "
        f"{classes - 1}{remedy}"
    )


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, torch.Tensor):
        raise ModelError(f"the loss is {type(loss).__name__}; it must be a tensor")
    if loss.numel() != 1:
        raise ModelError(f"the loss has shape {tuple(loss.shape)}; it must be the mean, one number")
    if not loss.is_floating_point():
        raise ModelError(f"the loss is {loss.dtype}; it must be a real number")
    if not loss.requires_grad:
        raise ModelError("the loss does not depend on any parameter that is trained")


def check_checkpoint(parts: Parts, tree: Mapping[str, Any]) -> None:
    """Look whether a run can go on from a checkpoint; ``parts`` stay as they are.

    Raises:
        ValueError: it is of another model, optimizer or batch plan.
    """
    scheme = parts.config.scheme
    given = {each.name: getattr(scheme, each.name) for each in fields(cast("Any", scheme))}
    for name, value in tree["scheme"].items():
        if given.get(name) not in (None, value):
            raise ValueError(
                f"scheme.{name} was fixed at {value_json(value)} when the run was started; leave it as it was, "
                "or start a new run"
            )
    parts.model.check_named(tree["parameters"], tree["buffers"])
    scheme.check_saved(tree["scheme"], parts.model.parameters)
    parts.optimizer(parts.model).load(tree["optimizer"])
    parts.tickets().restore(tree["tickets"])
