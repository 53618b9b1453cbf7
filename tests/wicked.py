"""Models and losses as nobody should write them: ``tests.wicked:NAME``."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from tests.deadly import let_it_be_written
from tests.permissions import permissions_hold


class Leaves(nn.Linear):
    """Leaves the process in its third forward pass: the job's own check makes one or two."""

    passes = 0

    def forward(self, x: Tensor) -> Tensor:
        """As `nn.Linear` at first."""
        Leaves.passes += 1
        if Leaves.passes > 2:
            sys.exit(0)
        return super().forward(x)


def leaves(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    Leaves.passes = 0
    return Leaves(input_shape[0], outputs)


def leaves_at_once(outputs: int) -> NoReturn:
    sys.exit(0)


def raises(outputs: int) -> NoReturn:
    raise KeyError("nothing")


def fails_in_training(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Batch normalisation of a single number a sample: fails on a batch of one sample."""
    return nn.Sequential(nn.Linear(input_shape[0], outputs), nn.BatchNorm1d(outputs))


def number_loss() -> Any:
    return lambda output, y: 1.5


def constant_loss() -> Any:
    return lambda output, y: output.detach().mean()


def infinite_loss() -> Any:
    """Not finite, with a gradient that is."""
    return lambda output, y: output.sum() + torch.tensor(torch.inf)


def masked(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """An infinite constant among the buffers that travel."""
    model = nn.Linear(input_shape[0], outputs)
    model.register_buffer("mask", torch.full((2,), -torch.inf))
    return model


def small_files(input_shape: tuple[int, ...], outputs: int, size: int) -> nn.Module:
    """From here on no file of this process grows beyond `size` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return nn.Linear(input_shape[0], outputs)


class Filling(nn.Module):
    """The disk fills up in its third forward pass: the job's own check makes one or two."""

    passes = 0

    def __init__(self, width: int, outputs: int, size: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, 200), nn.Linear(200, outputs)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """An MLP."""
        Filling.passes += 1
        if Filling.passes == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))
        result: Tensor = self.last(torch.relu(self.first(x)))
        return result


def disk_that_fills(input_shape: tuple[int, ...], outputs: int, size: int) -> nn.Module:
    Filling.passes = 0
    return Filling(input_shape[0], outputs, size)


class Ill(nn.Linear):
    """The disk below a run's checkpoints falls ill, or gets well, in the n-th gradient."""

    passes = 0
    bound = contextlib.ExitStack()  # nobody leaves it: this process ends with its job

    def __init__(self, width: int, outputs: int, events: dict[int, str], folder: Path) -> None:
        super().__init__(width, outputs)
        self.events, self.folder = events, folder
        self.fsync = os.fsync

    def forward(self, x: Tensor) -> Tensor:
        """As `nn.Linear`."""
        if torch.is_grad_enabled() and (self.folder / "ranks.json").exists():  # training has begun
            Ill.passes += 1
            if (event := self.events.get(Ill.passes)) is not None:
                self.change(event)
        return super().forward(x)

    def change(self, event: str) -> None:
        """Files of checkpoints are larger than the others."""
        let_it_be_written()
        Ill.bound.enter_context(permissions_hold())
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000 if event == "small" else limit, limit))
        (self.folder / "checkpoints").chmod(0o500 if event == "read-only" else 0o700)
        number = {"full": errno.ENOSPC, "broken": errno.EIO}.get(event)

        def fsync(descriptor: int) -> None:
            if number and Path(f"/proc/self/fd/{descriptor}").readlink().match("checkpoints/*"):
                raise OSError(number, os.strerror(number))
            self.fsync(descriptor)

        os.fsync = fsync


def ill_disk(
    input_shape: tuple[int, ...], outputs: int, events: list[str], folder: str
) -> nn.Module:
    """Each event is an illness, or ``well``, and the number of a gradient."""
    Ill.passes = 0
    pairs = [event.split() for event in events]
    return Ill(input_shape[0], outputs, {int(n): what for what, n in pairs}, Path(folder))
