"""Which torch classes a job may name, and whether torch takes the options given to them."""

from __future__ import annotations

import collections.abc
import inspect
import json
import types
import typing
import warnings
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch.optim import lr_scheduler

from psopt.config.eager_optim import leave_compiler_out, plain_step
from psopt.config.suggest import unknown
from psopt.config.wording import Fault, faults, must_be, shown

REFUSED = {
    "LBFGS": "it evaluates the loss again within a step; choose a scheme that runs L-BFGS instead",
    "SparseAdam": "it needs sparse gradients, and workers send dense ones; use Adam",
    "ReduceLROnPlateau": "it needs a metric at each step; use a schedule that counts steps",
    "LambdaLR": "it needs a function, which YAML cannot hold",
    "MultiplicativeLR": "it needs a function, which YAML cannot hold",
    "ChainedScheduler": "it is made of other schedules, which YAML cannot hold",
    "SequentialLR": "it is made of other schedules, which YAML cannot hold",
}
# Arguments that the run supplies itself (`last_epoch` comes from a checkpoint).
_SUPPLIED = {"self", "params", "optimizer", "last_epoch"}


class Refusal(ValueError):  # noqa: N818 - an answer of torch that callers turn into a problem
    """Torch does not accept the options, with torch's reason."""


def _classes(module: types.ModuleType, base: type[Any]) -> dict[str, type[Any]]:
    return {
        name: value
        for name, value in sorted(vars(module).items())
        if inspect.isclass(value)
        and issubclass(value, base)
        and value is not base
        and not name.startswith("_")
        and name not in REFUSED
    }


OPTIMIZERS = _classes(torch.optim, torch.optim.Optimizer)
SCHEDULERS = _classes(lr_scheduler, lr_scheduler.LRScheduler)


def unknown_class(kind: str, name: str, known: Mapping[str, type[Any]]) -> str:
    """Say why a name is none of the known classes, and which is meant."""
    module = {"optimizer": torch.optim, "scheduler": lr_scheduler}[kind]
    if name in REFUSED and hasattr(module, name):
        return f"{module.__name__}.{name} cannot be used: {REFUSED[name]}"
    return unknown(kind, name, known)


def required_options(cls: type[Any]) -> list[str]:
    """Return the options of a torch class that have no default."""
    parameters = inspect.signature(cls).parameters
    return [name for name in _adapters(cls) if parameters[name].default is inspect.Parameter.empty]


def option_names(cls: type[Any]) -> list[str]:
    """Return the options of a torch class that YAML can hold."""
    return list(_adapters(cls))


def checked_option(cls: type[Any], name: str, value: Any) -> Any:
    """Return an option as torch wants it (tuples for lists, floats for whole numbers).

    Raises:
        Refusal: the value is of another type.
    """
    try:
        return _adapters(cls)[name].validate_json(json.dumps(value), strict=True)
    except TypeError:
        raise Refusal(f"a {type(value).__name__} is no value that YAML can hold") from None
    except ValidationError as error:
        raise Refusal(_wrong_type(value, list(faults(error)))) from None


def _wrong_type(value: Any, found: list[Fault]) -> str:
    """Word the faults of an option; of the members of a union, those that came furthest into it."""
    positions = [[part for part in fault.path if isinstance(part, int)] for fault in found]
    deepest = max(positions, key=len)
    chosen = [fault for fault, at in zip(found, positions, strict=True) if at == deepest]
    for part in deepest:
        value = value[part] if part < len(value) else None
    if chosen[0].message:
        return chosen[0].message
    text = value if isinstance(value, str) else None
    item = "".join(f"item {part + 1} " for part in deepest)
    return item + must_be([fault.expected for fault in chosen], shown(value), text)


_ADAPTERS: dict[type[Any], dict[str, TypeAdapter[Any]]] = {}


def _adapters(cls: type[Any]) -> dict[str, TypeAdapter[Any]]:
    """Return a validator for each option of a torch class that YAML can hold."""
    if cls not in _ADAPTERS:
        hints = _hints(cls)
        names = [name for name in inspect.signature(cls).parameters if name not in _SUPPLIED]
        kinds = {name: _yaml_type(hints.get(name, Any)) for name in names}
        _ADAPTERS[cls] = {
            name: TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))
            for name, kind in kinds.items()
            if kind is not type(None)
        }
    return _ADAPTERS[cls]


def _hints(cls: type[Any]) -> dict[str, Any]:
    # Some modules of torch import the names of their annotations for type checkers only.
    known = vars(typing) | vars(collections.abc) | {"Optimizer": torch.optim.Optimizer}
    try:
        return typing.get_type_hints(cls.__init__, localns=known)
    except NameError:
        return {}  # the trial still finds what torch refuses


def _yaml_type(hint: Any) -> Any:
    """Return the part of a type that YAML can hold; NoneType where nothing is left."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is torch.Tensor or origin is collections.abc.Callable:
        return type(None)
    if origin in (Union, types.UnionType):
        kept = [kind for kind in map(_yaml_type, arguments) if kind is not type(None)]
        if kept and type(None) in arguments:
            kept.append(type(None))
        return Union[tuple(kept)] if kept else type(None)  # noqa: UP007 - built at run time
    if origin in (collections.abc.Iterable, collections.abc.Sequence):
        return list[arguments]  # type: ignore[valid-type]
    if origin is tuple:
        return tuple[tuple(map(_yaml_type, arguments))]  # type: ignore[misc]
    return hint


def try_optimizer(cls: type[Any], options: Mapping[str, Any]) -> torch.optim.Optimizer:
    """Construct the optimizer on a small parameter and take a step.

    Raises:
        Refusal: torch does not take the options.
    """
    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    parameter.grad = torch.zeros_like(parameter)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leave_compiler_out()
            optimizer: torch.optim.Optimizer = cls([parameter], **options)
            with torch.no_grad():
                plain_step(optimizer)()
    except Exception as error:
        raise Refusal(_refused(cls, error)) from error
    return optimizer


def try_scheduler(
    cls: type[Any], options: Mapping[str, Any], optimizer: torch.optim.Optimizer
) -> None:
    """Construct the schedule on an optimizer and advance it once.

    Raises:
        Refusal: torch does not take the options.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cls(optimizer, **options).step()
    except Exception as error:
        raise Refusal(_refused(cls, error)) from error


def _refused(cls: type[Any], error: Exception) -> str:
    reason = str(error) or type(error).__name__
    return f"torch does not take these options of {cls.__name__}: {reason}"
