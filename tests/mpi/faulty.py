"""A model with 16 MB of parameters whose worker fails in the middle: `tests.mpi.faulty:build`.

The fault happens in the n-th training pass of one rank. The file that `PSOPT_TEST_EVENT` names then
holds the time.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

EVENT = "PSOPT_TEST_EVENT"
SIXTEEN_MEGABYTES = 4_200_000


def build(
    *,
    input_shape: tuple[int, ...],
    outputs: int,
    fault: str = "go_on",
    rank: int = 1,
    at: int = 4,
    size: int = SIXTEEN_MEGABYTES,
) -> nn.Module:
    return Faulty(math.prod(input_shape), outputs, fault, at if _my_rank() == rank else 0, size)


def unseeded(*, input_shape: tuple[int, ...], outputs: int, frozen: bool) -> nn.Module:
    """Random numbers that psopt's seed does not reach."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), outputs))
    weight = model[1].weight
    with torch.no_grad():
        weight.copy_(torch.from_numpy(np.random.default_rng().normal(size=weight.shape)))
    weight.requires_grad = not frozen
    return model


def _my_rank() -> int:
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK"):
        if name in os.environ:
            return int(os.environ[name])
    return -1


class Faulty(nn.Module):
    def __init__(self, inputs: int, outputs: int, fault: str, at: int, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.wide = nn.Parameter(torch.zeros(size))
        self._fault, self._at, self._calls = getattr(self, fault), at, 0

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.linear(x.flatten(1)) + self.wide.mean()
        if self.training and torch.is_grad_enabled():
            self._calls += 1
            if self._calls == self._at:
                Path(os.environ[EVENT]).write_text(str(time.time()))
                return output * float(self._fault() or 1.0)
        return output

    def go_on(self) -> None:
        pass

    def nan(self) -> float:
        return math.nan

    def fail(self) -> None:
        raise RuntimeError("injected")

    def be_slow(self) -> None:
        """Five times as slow as a task of 0.1 s."""
        time.sleep(0.5)

    def be_killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def sys_exit(self) -> None:
        sys.exit(0)

    def os_exit(self) -> None:
        os._exit(0)

    def fail_in_child(self) -> None:
        if not os.fork():
            raise RuntimeError("injected")
        time.sleep(600)  # as who waits for an answer that never comes

    def exit_in_child(self) -> None:
        """A child that has done its work: nothing is wrong."""
        child = os.fork()
        if not child:
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def have_child(self) -> None:
        subprocess.Popen(["sleep", "600"])

    def have_far_child(self) -> None:
        """A child that mpirun does not reach by the process group."""
        subprocess.Popen(["sleep", "600"], start_new_session=True)

    def fail_with_child(self) -> None:
        self.have_child()
        self.fail()

    def be_killed_with_child(self) -> None:
        self.have_child()
        self.be_killed()

    def os_exit_with_far_child(self) -> None:
        self.have_far_child()
        self.os_exit()
