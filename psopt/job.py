"""A job file, and the objects that its sections stand for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationInfo, field_validator

from psopt.config import (
    Check,
    JobConfig,
    MapNode,
    OptimizerConfig,
    Override,
    Problem,
    build,
    load_job,
)
from psopt.data.dataset import Dataset, open_dataset
from psopt.data.layout import resolve
from psopt.data.plan import TicketBook
from psopt.models.factory import ModelError
from psopt.models.flat import FlatModel
from psopt.models.losses import Loss, build_loss, check_loss_kwargs
from psopt.models.zoo import build_model, check_kwargs
from psopt.optim.first_order import FirstOrder
from psopt.replica.replica import Replica
from psopt.replica.spans import SpanLog
from psopt.schemes import AnyScheme
from psopt.schemes.base import Scheme
from psopt.schemes.batch import SolverScheme
from psopt.schemes.wasp import Wasp


class Job(JobConfig[AnyScheme]):
    """One training job of psopt: everything that decides its result, and how it is run."""

    @field_validator("optimizer")
    @classmethod
    def _where_needed(
        cls, optimizer: OptimizerConfig | None, info: ValidationInfo
    ) -> OptimizerConfig | None:
        scheme = info.data.get("scheme")  # None where it is not valid itself
        if optimizer is None and scheme is not None and scheme.needs_optimizer:
            raise ValueError(
                f"required key 'optimizer' is missing: scheme {scheme.name} takes its steps by one, "
                "such as {name: SGD, lr: 0.02}"
            )
        return optimizer


_NO_OPTIMIZER = OptimizerConfig(name="SGD", lr=1.0)  # of a server that is never stepped by one

_SCALE_FREE = {
    *("Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "Muon", "NAdam", "RAdam"),
    *("RMSprop", "Rprop"),
}


def load(
    path: Path, overrides: Sequence[str] = (), further: Sequence[Check] = ()
) -> JobConfig[Scheme]:
    """Load and check a job file, with further checks if need be; its data path becomes absolute.

    Raises:
        ConfigError: everything that is wrong with it.
    """
    return _located(load_job(path, Job, overrides, (*_CHECKS, *further)))


def load_changed(root: MapNode, changes: Iterable[Override]) -> JobConfig[Scheme]:
    """The same of a job file that has been read already, with changes made in order.

    Args:
        root: the file's tree, which becomes that of the changed job.
        changes: from elsewhere; faults have their places.

    Raises:
        ConfigError: everything that is wrong with it.
    """
    return _located(build(root, Job, changes, _CHECKS))


def _located(config: JobConfig[Scheme]) -> JobConfig[Scheme]:
    data = config.data.model_copy(update={"path": _absolute(config.data.path)})
    return config.model_copy(update={"data": data})


def check_options(config: JobConfig[Scheme]) -> Iterator[Problem]:
    """Models and losses that cannot be found, and options that they do not have."""
    for section, check_section in (("model", check_kwargs), ("loss", check_loss_kwargs)):
        chosen = getattr(config, section)
        try:
            problems = check_section(chosen.name, chosen.factory, chosen.kwargs)
        except ModelError as error:  # there is no such thing
            yield Problem((section, "factory" if chosen.factory else "name"), str(error))
        else:
            yield from (Problem((section, "kwargs"), message) for message in problems)


def check_objective(config: JobConfig[Scheme]) -> Iterator[Problem]:
    """A stop at an objective that the scheme never measures."""
    if config.stop.objective is not None and not config.scheme.measures_objective:
        yield Problem(
            ("stop", "objective"),
            f"scheme {config.scheme.name} does not measure the objective here, so the run would never "
            "stop at it; use 'test_loss', or a batch method on the whole training set",
        )


def check_wasp(config: JobConfig[Scheme]) -> Iterator[Problem]:
    """A weight on the gradient that the optimizer would cancel."""
    scheme, optimizer = config.scheme, config.optimizer
    if not isinstance(scheme, Wasp) or scheme.weight == "none" or optimizer is None:
        return
    if scheme.weight_on == "gradient" and optimizer.name in _SCALE_FREE:
        yield Problem(
            ("scheme", "weight_on"),
            f"{optimizer.name} divides the gradient by its own size, so a weight on the gradient has no "
            "effect; use 'weight_on: rate'",
        )


def check_slices(config: JobConfig[Scheme]) -> Iterator[Problem]:
    """Mini-batches of a solver that are no whole slices, and options of mini-batches without any."""
    scheme, size = config.scheme, config.train.batch_size
    if not isinstance(scheme, SolverScheme):
        return
    if scheme.batch is None and scheme.iterations != 1:
        yield Problem(
            ("scheme", "iterations"),
            "they are steps on one mini-batch: without 'batch' the run is on the whole training set",
        )
    if scheme.batch is not None and scheme.batch % size:
        yield Problem(
            ("scheme", "batch"),
            f"{scheme.batch} samples are no whole slices: a multiple of train.batch_size, {size}, is",
        )


_CHECKS = (check_options, check_objective, check_wasp, check_slices)


def needless(config: JobConfig[Scheme]) -> str:
    """What the job says that has no effect with its scheme; a sentence, or nothing.

    It is no error, so that one word of a job file changes the scheme.
    """
    if config.scheme.among_themselves and config.cluster.faults.poisoned:
        return "cluster.faults.poisoned has no effect on what workers exchange among themselves"
    if config.scheme.needs_optimizer:
        return ""
    given = {
        "optimizer": config.optimizer is not None,
        "scheduler": config.scheduler is not None,
        "train.clip_norm": config.train.clip_norm is not None,
        "on_bad_update": config.on_bad_update != "abort",
    }
    keys = [key for key, is_given in given.items() if is_given]
    if not keys:
        return ""
    verb = "has" if len(keys) == 1 else "have"
    return f"scheme {config.scheme.name} takes its steps itself: {', '.join(keys)} {verb} no effect"


@dataclass(frozen=True)
class Parts:
    """What a rank trains with."""

    config: JobConfig[Scheme]
    data: Dataset
    model: FlatModel
    loss: Loss

    def optimizer(self, model: FlatModel) -> FirstOrder:
        """The optimizer of the job on the parameters of ``model``."""
        config, needed = self.config, self.config.scheme.needs_optimizer
        return FirstOrder(
            model.parameters,
            model.shapes,
            config.optimizer if needed and config.optimizer else _NO_OPTIMIZER,
            config.scheduler if needed else None,
            config.train.clip_norm,
        )

    def tickets(self) -> TicketBook:
        """The account of all batches of the job."""
        train = self.config.train
        return TicketBook(self.config.seed, len(self.data.train), train.batch_size, train.epochs)

    def replica(self, clock: SpanLog | None = None) -> Replica:
        """A replica on this rank's model and data."""
        return Replica(
            self.model,
            self.loss,
            self.data,
            self.tickets().plan,
            self.optimizer,
            seed=self.config.seed,
            evaluation_batch=self.config.evaluate.batch_size,
            l2=self.config.loss.l2,
            clock=clock,
        )


def assemble(config: JobConfig[Scheme], device: torch.device | str = "cpu") -> Parts:
    """Open the data set and build model and loss; the same on every rank.

    Raises:
        DataError, ModelError: with what is wrong and the remedy.
    """
    data = open_dataset(
        config.data.path,
        cache_bytes=config.data.cache_bytes,
        classes=config.data.classes,
        train_limit=config.data.train_limit,
        test_limit=config.data.test_limit,
        normalise=config.data.normalise,
    )
    try:
        module = build_model(
            config.model.name,
            config.model.factory,
            config.model.kwargs,
            input_shape=data.input_shape,
            outputs=data.outputs,
            seed=config.seed,
        )
    except ModelError as error:
        raise ModelError(f"{error} (the samples are those of {config.data.path})") from error
    if config.model.dtype == "float64":
        module = module.double()
    loss = build_loss(config.loss.name, config.loss.factory, config.loss.kwargs)
    return Parts(config, data, FlatModel(module, device), loss)


def choose_device(kind: str, local_rank: int) -> torch.device:
    """The device of a worker.

    A rank that sees one GPU uses it (a batch system has chosen); one that sees several takes the
    GPU of its number among the workers on the host.

    Raises:
        ModelError: ``cuda`` is asked for and there is none.
    """
    count = torch.cuda.device_count() if kind != "cpu" else 0
    if count == 0:
        if kind == "cuda":
            raise ModelError("device.kind is cuda, but torch sees no GPU on this host")
        return torch.device("cpu")
    device = torch.device("cuda", local_rank % count)
    torch.cuda.set_device(device)
    return device


def set_threads(wanted: int | None, share: int) -> int:
    """CPU threads of this rank: the job's, else the user's OMP_NUM_THREADS, else this rank's share."""
    user = os.environ.get("OMP_NUM_THREADS", "")
    threads = wanted or (int(user) if user.isdigit() and int(user) > 0 else max(1, share))
    torch.set_num_threads(threads)
    return threads


def _absolute(path: str) -> str:
    return path if path == "sample" else str(Path(resolve(path)).absolute())
