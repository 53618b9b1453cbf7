"""What L-BFGS and CG share: a direction, a Wolfe search along it, and what happens when it fails.

::

    start -> ready -> searching -> ready -> ... -> done
                      searching -> returning -> ready       the step that was best is evaluated again

A search that finds no Wolfe point takes its best decrease. Without a decrease the solver forgets
its memory and tries -g; if that fails too, it stops. A status is final until ``rebase``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from psopt.optim.inner import add, dot, norm_1, norm_max
from psopt.optim.progress import Options, Progress, Stage
from psopt.optim.solver import Status
from psopt.optim.wolfe import Outcome, Rules, Search

__all__ = ["Descent", "Options"]

_FEW = 4.0  # this many times what rounding hides is still not to be seen


class Descent(ABC):
    """Ask/tell descent with a line search; a subclass chooses the direction.

    Args:
        start: first point (n,), any float dtype, any device; copied.
        options: hyper-parameters.

    Raises:
        ValueError: ``start`` is not a vector of a float dtype.
    """

    def __init__(self, start: Tensor, options: Options) -> None:
        if start.dim() != 1 or not start.dtype.is_floating_point:
            raise ValueError(
                f"start has shape {tuple(start.shape)} and dtype {start.dtype}: "
                f"a solver works on a flat vector (n,) of floats"
            )
        self._x = start.detach().clone(memory_format=torch.contiguous_format)
        self._trial = self._x.clone()
        self._best = self._x.clone()
        self._g = torch.zeros_like(self._x)
        self._d = torch.zeros_like(self._x)
        self._options = options
        self._rules = Rules(
            options.decrease,
            options.curvature,
            options.search_evaluations,
            options.rounding_of(self._x.dtype),
            torch.finfo(torch.promote_types(self._x.dtype, torch.float32)).max,
        )
        self._now = Progress()
        self._search: Search | None = None

    # What a method is made of.

    @abstractmethod
    def _direct(self, source: Tensor) -> bool:
        """Write the direction for the gradient ``source`` into ``_d``; False where it is -source."""

    @abstractmethod
    def _first_step(self, slope: float) -> float | None:
        """First trial along ``_d``, whose slope is given; None for min(1, 1 / |g|_1)."""

    @abstractmethod
    def _learn(self, new: Tensor, gradient: Tensor) -> None:
        """Learn from the step from ``_x``, ``_g`` along ``_d`` to ``new`` with its gradient."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop what was learnt: the next direction is steepest descent."""

    @abstractmethod
    def _memory(self) -> dict[str, Any]:
        """State of the method."""

    @abstractmethod
    def _recall(self, memory: Mapping[str, Any]) -> None:
        """Restore what ``_memory`` gave."""

    # The contract of psopt.optim.solver.

    def ask(self) -> Tensor:
        """Point at which loss and gradient are wanted."""
        if self.done:
            raise RuntimeError(f"the solver has ended ({self.status}): {self.status.advice}")
        if self._now.stage is Stage.READY:
            self._aim(self._g)
        return self._trial

    def tell(self, loss: float, gradient: Tensor) -> None:
        """Take in loss and gradient at the point that was asked for."""
        if self.done or self._now.stage is Stage.READY:
            raise RuntimeError("tell follows ask: no point is out for evaluation")
        self._check(gradient)
        loss, now = float(loss), self._now
        now.evaluations += 1
        if now.lowers(loss):
            now.best_loss = loss
            self._best.copy_(self._trial)
        if loss < self._options.lower_bound:
            now.status = Status.UNBOUNDED
        elif now.stage is Stage.START:
            self._settle(loss, gradient)
        elif now.stage is Stage.RETURNING:
            finite = math.isfinite(loss + dot(gradient, self._d))
            self._step(loss, gradient) if finite else self._fail()
        else:
            self._continue(loss, gradient, dot(gradient, self._d))
        now.cap_evaluations(self._options)

    def rebase(self, loss: float, gradient: Tensor, steer: Tensor | None = None) -> None:
        """Go on from ``point`` with another objective; see ``psopt.optim.solver``."""
        self._check(gradient)
        self._now.renew(float(loss))
        self._best.copy_(self._x)
        self._search = None
        self._settle(float(loss), gradient)
        self._now.cap_evaluations(self._options)
        if steer is not None and not self.done:
            self._check(steer)
            self._aim(steer)

    @property
    def status(self) -> Status:
        """How the run stands."""
        return self._now.status

    @property
    def done(self) -> bool:
        """Whether the status is a final one."""
        return self._now.status is not Status.RUNNING

    @property
    def iterations(self) -> int:
        """Steps taken."""
        return self._now.iterations

    @property
    def evaluations(self) -> int:
        """Losses and gradients taken in."""
        return self._now.evaluations

    @property
    def best(self) -> tuple[float, Tensor]:
        """Lowest loss and its point (live)."""
        loss = self._now.best_loss
        return math.nan if loss is None else loss, self._best

    @property
    def point(self) -> Tensor:
        """The current iterate (live)."""
        return self._x

    @property
    def loss(self) -> float:
        """Loss at ``point``."""
        loss = self._now.loss
        return math.nan if loss is None else loss

    @property
    def gradient(self) -> Tensor:
        """Gradient at ``point`` (live)."""
        return self._g

    def state(self) -> dict[str, Any]:
        """Everything that a resume needs, as plain values and live tensors."""
        return {
            "x": self._x,
            "g": self._g,
            "d": self._d,
            "best": self._best,
            "progress": self._now.state(),
            "search": None if self._search is None else self._search.state(),
            "memory": self._memory(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` stands; its tensors are copied.

        A run that had converged goes on where these options have a tolerance that it has not met, and one
        that had not ends where they have one that it has met.

        Raises:
            ValueError: it belongs to vectors of another size or dtype.
        """
        for key, own in {"x": self._x, "g": self._g, "d": self._d, "best": self._best}.items():
            given = state[key]
            if given.shape != own.shape or given.dtype != own.dtype:
                raise ValueError(
                    f"the state is of {given.numel()} elements of {given.dtype}, "
                    f"the solver of {own.numel()} of {own.dtype}"
                )
            own.copy_(given)
        self._now = Progress.load(state["progress"])
        self._now.judge(self._options)
        search = state["search"]
        self._search = None if search is None else Search.load(self._rules, search)
        self._recall(state["memory"])
        self._place()

    # The steps of a run.

    def _check(self, gradient: Tensor) -> None:
        if gradient.shape != self._x.shape:
            raise ValueError(
                f"the gradient has shape {tuple(gradient.shape)}, the point {tuple(self._x.shape)}"
            )

    def _settle(self, loss: float, gradient: Tensor) -> None:
        """Make ``gradient`` that of the current point, and see whether the run has ended there."""
        self._g.copy_(gradient)
        if self._now.arrive(loss, norm_max(self._g), self._options, self._rules.rounding):
            self._best.copy_(self._x)

    def _aim(self, source: Tensor) -> None:
        """Choose direction and first trial; steepest descent where the direction does not descend."""
        now = self._now
        now.fresh = not self._direct(source)
        slope = dot(self._g, self._d)
        if not slope < 0.0 and source is not self._g:
            now.fresh = not self._direct(self._g)
            slope = dot(self._g, self._d)
        if not slope < 0.0 or not math.isfinite(slope):
            self._forget()
            now.fresh = not self._direct(self._g)
            slope = dot(self._g, self._d)
        alpha = self._first_step(slope)
        if alpha is None:
            alpha = min(1.0, 1.0 / norm_1(self._g))
        self._search = Search(self._rules, self.loss, slope, alpha)
        now.stage = Stage.SEARCHING
        now.alpha = self._search.alpha
        self._place()

    def _place(self) -> None:
        """Put the trial at the step that is to be tried."""
        if self._now.alpha:
            add(self._x, self._d, self._now.alpha, out=self._trial)
        else:
            self._trial.copy_(self._x)

    def _continue(self, loss: float, gradient: Tensor, slope: float) -> None:
        """Hand a trial to the search, and do what it says."""
        search, tried = self._search, self._now.alpha
        assert search is not None
        search.tell(loss, slope)
        self._now.alpha = search.alpha
        if search.outcome is Outcome.FAILED:
            self._fail()
        elif search.outcome is Outcome.WOLFE or (
            search.outcome is Outcome.LOWER and search.alpha == tried
        ):
            self._step(loss, gradient)
        else:
            if search.outcome is Outcome.LOWER:
                self._now.stage = Stage.RETURNING
            self._place()

    def _step(self, loss: float, gradient: Tensor) -> None:
        """Take the step to the trial."""
        self._now.fall = self.loss - loss
        self._learn(self._trial, gradient)
        self._x, self._trial = self._trial, self._x
        self._now.iterations += 1
        self._settle(loss, gradient)

    def _fail(self) -> None:
        """After a search without a lower point: try steepest descent, or give up."""
        now, search = self._now, self._search
        assert search is not None
        if not now.fresh:
            self._forget()
            now.stage, now.alpha, self._search = Stage.READY, 0.0, None
        elif search.blocked:
            now.status = Status.NON_FINITE
        elif search.promise <= _FEW * self._resolution():
            now.status = Status.PRECISION_LIMIT
        else:
            now.status = Status.LINE_SEARCH_FAILED

    def _resolution(self) -> float:
        """Change of the loss that rounding hides: its own, and that of each parameter."""
        moved = norm_1(torch.mul(self._g, self._x, out=self._trial))  # the trial is of no use now
        unit = torch.finfo(self._x.dtype).eps
        return self._rules.rounding * abs(self.loss) + unit * moved
