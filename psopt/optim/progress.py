"""When a run of a solver ends: its limits, its tolerances, and what is counted against them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from psopt.optim.solver import Status

LOWER_BOUND = -1e20
"""An objective below it is taken for one that has no minimum."""


def lowest(size: float) -> float:
    """The same, for an objective that was ``size`` large at the start."""
    return LOWER_BOUND * max(1.0, size)


_PATIENCE = 20  # iterations without a lower loss or a smaller gradient than ever before


@dataclass(frozen=True)
class Options:
    """Hyper-parameters that all solvers have.

    Tolerances are relative unless named absolute.

    Args:
        gradient_tolerance: converged when max |g| is at most this part of that at the start.
        absolute_gradient: converged when max |g| is at most this; 0 for never.
        objective_tolerance: converged when an iteration lowers the loss by at most this part of it;
            0 for never.
        lower_bound: a loss below it is taken for unbounded.
        max_iterations: steps.
        max_evaluations: losses and gradients, at least 1.
        search_evaluations: the same, of one line search; at least 1.
        decrease: c1 of the Wolfe conditions.
        curvature: c2, in (c1, 1).
        rounding: relative error of a loss; by default from the dtype, see ``rounding_of``.
    """

    gradient_tolerance: float = 1e-6
    absolute_gradient: float = 0.0
    objective_tolerance: float = 0.0
    lower_bound: float = LOWER_BOUND
    max_iterations: int = 10_000
    max_evaluations: int = 20_000
    search_evaluations: int = 20
    decrease: float = 1e-4
    curvature: float = 0.9
    rounding: float | None = None

    def rounding_of(self, dtype: torch.dtype) -> float:
        """Relative error to expect in a loss computed in ``dtype``: a few units in the last place."""
        if self.rounding is not None:
            return self.rounding
        unit = torch.finfo(dtype).eps
        return max(unit, min(10.0 * unit, 1e-3))


class Stage(StrEnum):
    """What the solver waits for."""

    START = "start"  # loss and gradient at the start
    READY = "ready"  # to be asked for the first trial of a new search
    SEARCHING = "searching"  # a trial's loss and gradient
    RETURNING = "returning"  # those of the best trial, once more


@dataclass
class Progress:
    """The plain part of a run's state."""

    stage: Stage = Stage.START
    status: Status = Status.RUNNING
    iterations: int = 0
    evaluations: int = 0
    loss: float | None = None
    best_loss: float | None = None
    norm: float = 0.0  # max |g| at the point
    first_norm: float | None = None
    least_norm: float | None = None
    seen_loss: float | None = None  # the last that was lower by more than rounding
    stalled: int = 0  # iterations since something got better
    alpha: float = 0.0  # the step that is tried, or was taken last
    fall: float = 0.0  # of the loss, in the last step
    fallen: float | None = None  # the same, relative to the loss
    fresh: bool = True  # the direction is steepest descent

    def state(self) -> dict[str, Any]:
        """Plain values only."""
        return {**vars(self), "stage": self.stage.value, "status": self.status.value}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Progress:
        """The progress that ``state`` came from."""
        stage, status = Stage(state["stage"]), Status(state["status"])
        return cls(**{**state, "stage": stage, "status": status})

    def lowers(self, loss: float) -> bool:
        """Whether ``loss`` is the lowest so far."""
        return math.isfinite(loss) and (self.best_loss is None or loss < self.best_loss)

    def renew(self, loss: float) -> None:
        """Another objective: nothing that was said of the old one holds."""
        self.status, self.stage = Status.RUNNING, Stage.START
        self.evaluations += 1
        self.loss = self.least_norm = self.seen_loss = self.fallen = None
        self.best_loss = loss if math.isfinite(loss) else None
        self.stalled = 0

    def cap_evaluations(self, options: Options) -> None:
        """End a run that goes on with no evaluation left."""
        if self.status is Status.RUNNING and self.evaluations >= options.max_evaluations:
            self.status = Status.EVALUATIONS

    def arrive(self, loss: float, norm: float, options: Options, rounding: float) -> bool:
        """Take the new point into account.

        Args:
            loss: loss there.
            norm: max |g| there.
            options: tolerances and limits.
            rounding: relative error of a loss.

        Returns:
            Whether the gradient has converged at a loss that is the lowest but for rounding.
        """
        before, self.loss = self.loss, loss if math.isfinite(loss) else None
        if self.loss is None or not math.isfinite(norm * norm):  # the slope along -g is a square
            self.status = Status.NON_FINITE
            return False
        self.stage, self.norm = Stage.READY, norm
        self.first_norm = norm if self.first_norm is None else self.first_norm
        self._count_stalls(loss, norm, rounding)
        if before is not None:
            size = max(abs(before), abs(loss))
            self.fallen = (before - loss) / size if size else 0.0
        if (reached := self._reached(options)) is not None:
            self.status = reached
            best = loss if self.best_loss is None else self.best_loss
            if reached is Status.CONVERGED_GRADIENT and loss <= best + rounding * abs(best):
                self.best_loss = loss
                return True
        elif self.stalled >= _PATIENCE:
            self.status = Status.PRECISION_LIMIT
        elif self.iterations >= options.max_iterations:
            self.status = Status.ITERATIONS
        return False

    def judge(self, options: Options) -> None:
        """See whether the run has converged by these tolerances, which may not be those of before."""
        open_ = (Status.RUNNING, Status.CONVERGED_GRADIENT, Status.CONVERGED_OBJECTIVE)
        if self.status in open_ and self.first_norm is not None:
            self.status = self._reached(options) or Status.RUNNING

    def _reached(self, options: Options) -> Status | None:
        """The tolerance that is met at the point."""
        assert self.first_norm is not None
        limit = max(options.absolute_gradient, options.gradient_tolerance * self.first_norm)
        if self.norm <= limit:
            return Status.CONVERGED_GRADIENT
        if self.norm * self.norm == 0.0:  # there is no slope to search along
            return Status.PRECISION_LIMIT
        tolerance = options.objective_tolerance
        if tolerance > 0.0 and self.fallen is not None and self.fallen <= tolerance:
            return Status.CONVERGED_OBJECTIVE
        return None

    def _count_stalls(self, loss: float, norm: float, rounding: float) -> None:
        better = self.seen_loss is None or self.seen_loss - loss > rounding * abs(self.seen_loss)
        if better:
            self.seen_loss = loss
        if self.least_norm is None or norm < self.least_norm:
            self.least_norm, better = norm, True
        self.stalled = 0 if better else self.stalled + 1
