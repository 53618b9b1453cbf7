"""The optimizer and scheduler sections: classes of torch, their options checked by torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from psopt.config import torch_options
from psopt.config.problems import Path, Problem, SectionError
from psopt.config.section import Section
from psopt.config.suggest import unknown
from psopt.config.torch_options import OPTIMIZERS, SCHEDULERS, Refusal
from psopt.config.values import FiniteFloat

SectionT = TypeVar("SectionT", bound=Section)

TRIED = {"tried": True}
"""Validation context of a job that another rank has tried on torch: a first optimizer costs a process
seconds of imports, and a worker may never need one."""


def was_tried(info: ValidationInfo) -> bool:
    """True when the job need not be tried on torch again."""
    return info.context is not None and bool(info.context.get("tried"))


class GroupConfig(Section):
    """Options for the parameters whose names match; any of the optimizer's, `lr` included."""

    model_config = ConfigDict(extra="allow")

    match: str = Field(
        min_length=1, description="Glob on parameter names, for example '*.bias'; first match wins."
    )

    @property
    def options(self) -> dict[str, Any]:
        """The options that this group overrides, by name."""
        return dict(self.__pydantic_extra__ or {})


class OptimizerConfig(Section):
    """The server's update rule: a class of torch.optim, with any option of that class."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(
        description="A torch.optim class, for example SGD or AdamW.",
        json_schema_extra={"enum": [*OPTIMIZERS]},
    )
    lr: FiniteFloat = Field(gt=0, description="Learning rate (no unit), before any schedule.")
    groups: list[GroupConfig] = Field(
        default=[],
        description="Options for some of the parameters; the others take those given above.",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _torch_takes_it(
        cls, values: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if not isinstance(values, dict):
            return handler(values)
        torch_class, problems = _class("optimizer", values, OPTIMIZERS)
        if torch_class is not None:
            values, found = _checked(torch_class, values, ("name", "lr", "groups"), ())
            problems += found
            groups = values.get("groups")
            if isinstance(groups, list):
                values["groups"] = list(groups)
                for i, group in enumerate(groups):
                    if isinstance(group, dict):
                        checked = _checked(torch_class, group, ("match",), ("groups", i))
                        values["groups"][i] = checked[0]
                        problems += checked[1]
        section = _finished(values, handler, problems)
        if not was_tried(info):
            section._try_on_torch()
        return section

    def _try_on_torch(self) -> None:
        problems = []
        trials: list[tuple[Path, Mapping[str, Any]]] = [((), {})]
        trials += [(("groups", i), group.options) for i, group in enumerate(self.groups)]
        for path, overrides in trials:
            try:
                torch_options.try_optimizer(self.cls, self.options | dict(overrides))
            except Refusal as refusal:
                problems.append(Problem(path, str(refusal)))
                if not path:
                    break
        if problems:
            raise SectionError(problems)

    @property
    def cls(self) -> type[Any]:
        """The torch.optim class."""
        return OPTIMIZERS[self.name]

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of the class: everything but `name` and `groups`."""
        return {"lr": self.lr, **(self.__pydantic_extra__ or {})}


class SchedulerConfig(Section):
    """A learning-rate schedule: a class of torch.optim.lr_scheduler, with any option of it."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(
        description="A torch.optim.lr_scheduler class, for example CosineAnnealingLR.",
        json_schema_extra={"enum": [*SCHEDULERS]},
    )
    per: Literal["step", "epoch"] = Field(
        default="step", description="What advances the schedule: a server step, or an epoch."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _torch_takes_it(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(values, dict):
            return handler(values)
        torch_class, problems = _class("scheduler", values, SCHEDULERS)
        if torch_class is not None:
            values, found = _checked(torch_class, values, ("name", "per"), ())
            problems += found
            problems += [
                Problem((), f"required key {name!r} of {torch_class.__name__} is missing")
                for name in torch_options.required_options(torch_class)
                if name not in values
            ]
        return _finished(values, handler, problems)

    @property
    def cls(self) -> type[Any]:
        """The torch.optim.lr_scheduler class."""
        return SCHEDULERS[self.name]

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of the class: everything but `name` and `per`."""
        return dict(self.__pydantic_extra__ or {})

    def check_on(self, optimizer: OptimizerConfig) -> list[Problem]:
        """Try the schedule on the optimizer of the same job; the problems are torch's reasons."""
        trial = torch_options.try_optimizer(optimizer.cls, optimizer.options)
        try:
            torch_options.try_scheduler(self.cls, self.options, trial)
        except Refusal as refusal:
            return [Problem((), str(refusal))]
        return []


def _class(
    kind: str, values: Mapping[str, Any], known: Mapping[str, type[Any]]
) -> tuple[type[Any] | None, list[Problem]]:
    name = values.get("name")
    if not isinstance(name, str):
        return None, []  # the field's own error says so
    if name not in known:
        return None, [Problem(("name",), torch_options.unknown_class(kind, name, known))]
    return known[name], []


def _checked(
    torch_class: type[Any], values: Mapping[str, Any], own: tuple[str, ...], path: Path
) -> tuple[dict[str, Any], list[Problem]]:
    """Check the options among the values of a section; its own keys are left to the schema."""
    checked = dict(values)
    problems = []
    names = torch_options.option_names(torch_class)
    for key, value in values.items():
        if key in own:
            continue
        if key not in names:
            message = unknown("key", key, dict.fromkeys([*own, *names]))
            problems.append(Problem((*path, key), message, at_key=True))
            continue
        try:
            checked[key] = torch_options.checked_option(torch_class, key, value)
        except Refusal as refusal:
            problems.append(Problem((*path, key), str(refusal)))
    return checked, problems


def _finished(
    values: Any, handler: ModelWrapValidatorHandler[SectionT], problems: list[Problem]
) -> SectionT:
    """Let the schema check the rest, and report its errors together with the problems found."""
    try:
        section = handler(values)
    except ValidationError as error:
        if not problems:
            raise
        raise SectionError(problems, error) from None
    if problems:
        raise SectionError(problems)
    return section
