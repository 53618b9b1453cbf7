"""What a simulated gradient costs: the whole of a simulation's step against a plain gradient."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import torch

from psopt import job
from psopt.roles.display import Figures, Several
from psopt.study.trial import Setting, Trial, job_of
from psopt.study.virtual import run

_BLOCK = 16


def simulation_cost(setting: Setting, workers: int, blocks: int = 40) -> tuple[float, float]:
    """Seconds of a gradient, plain and simulated.

    A plain gradient reads the batch's rows, goes forward and backward. A simulated one is all that
    the coordinator's loop does for it under ASP: tasks, copies, events, the update, the record. The
    two alternate in blocks within one process, so that both meet the same machine.

    Args:
        setting: of the study; its evaluations are left out.
        workers: virtual ones.
        blocks: of 16 gradients each, of either kind.

    Returns:
        Medians over the blocks.
    """
    quiet = Setting(setting.data, setting.model, setting.batch, cap=_BLOCK * (blocks + 1))
    trial = Trial("asp", workers, False, -12, 1)
    written = job_of(quiet, trial).model_dump_json()
    config = job.Job.model_validate_json(written)
    never = config.evaluate.model_copy(update={"every_steps": 1 << 30})
    logged = config.log.model_copy(update={"every_steps": 1})
    config = config.model_copy(update={"evaluate": never, "log": logged})
    alternation = _Alternation(_plain_gradients(quiet, trial))
    run(config, alternation)
    return median(alternation.plain[1:]), median(alternation.simulated[1:])


class _Alternation(Several):
    """A display that takes the time of a block of steps, then of as many plain gradients."""

    def __init__(self, gradients: Iterator[None]) -> None:
        super().__init__([])
        self.plain: list[float] = []
        self.simulated: list[float] = []
        self._gradients, self._start = gradients, time.perf_counter()

    def step(self, figures: Figures) -> None:
        """Called after each update."""
        if figures.step % _BLOCK:
            return
        turn = time.perf_counter()
        for _ in range(_BLOCK):
            next(self._gradients)
        end = time.perf_counter()
        self.simulated.append((turn - self._start) / _BLOCK)
        self.plain.append((end - turn) / _BLOCK)
        self._start = time.perf_counter()


def _plain_gradients(setting: Setting, trial: Trial) -> Iterator[None]:
    """One gradient after another, as a training script computes them."""
    parts = job.assemble(job_of(setting, trial))
    module, tickets = parts.model.module, parts.tickets()
    while (ticket := tickets.issue()) is not None:
        x, y = parts.data.train.batch(tickets.plan(ticket.epoch).rows(ticket.batch))
        module.zero_grad()
        loss = parts.loss(module(x), y)
        torch.autograd.backward(loss)
        loss.item()
        yield
