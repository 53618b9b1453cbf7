"""What every batch solver is: asked for a point, told its loss and gradient, stopped anywhere.

The contract, which one test checks over all solvers::

    solver = LBFGS(start)                  # a constructor evaluates nothing
    while not solver.done:
        point = solver.ask()               # (n,), the solver's own buffer: read it, keep a copy
        solver.tell(*oracle(point))        # the loss as a float, the gradient as a tensor (n,)
    loss, point = solver.best

- ``ask`` gives the same point until ``tell``, which may be the last use of that buffer. ``tell``
  keeps no reference to the gradient. ``ask`` of a solver that is done, and ``tell`` without ``ask``,
  are RuntimeErrors.
- ``state`` is a tree of plain values and live tensors (``psopt.optim.tree``): copy or write it
  before the next ``ask``, ``tell`` or ``rebase``. A fresh solver of the same size, dtype and options
  that loads it goes on bitwise as the first would have, from between any ``ask`` and ``tell``. One
  with closer tolerances goes on from where the first had converged.
- Hyper-parameters are frozen dataclasses, and no part of the state.
- ``best`` is the point of the lowest loss told, whatever the status; a tie keeps the older point.
  When the gradient has converged at a loss which is the lowest but for rounding, that point is it.
- A loss or gradient that is not finite is never stepped to. No status is reached by waiting: every
  search has a cap of evaluations, and the run has one.

Mini-batch methods change the objective between steps: ``point`` is the current iterate, at which
``rebase`` brings loss and gradient of another batch. Nothing in a solver's memory is a difference
of two batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from torch import Tensor


class Status(StrEnum):
    """How a run stands, or why it ended."""

    RUNNING = "running"
    CONVERGED_GRADIENT = "converged (gradient)"
    CONVERGED_OBJECTIVE = "converged (objective)"
    PRECISION_LIMIT = "precision limit"
    LINE_SEARCH_FAILED = "line search failed"
    NON_FINITE = "non-finite"
    UNBOUNDED = "unbounded"
    EVALUATIONS = "evaluations"
    ITERATIONS = "iterations"

    @property
    def advice(self) -> str:
        """What the status means, and what to do about it."""
        return _ADVICE[self]


_ADVICE = {
    Status.RUNNING: "ask for the next point",
    Status.CONVERGED_GRADIENT: "the gradient is within its tolerance",
    Status.CONVERGED_OBJECTIVE: "an iteration lowered the objective by less than its tolerance",
    Status.PRECISION_LIMIT: "steps no longer lower the objective by more than rounding: take a wider "
    "dtype for more digits, or it has a kink here",
    Status.LINE_SEARCH_FAILED: "steepest descent finds no lower point: is the gradient that of the "
    "loss, and are both without noise?",
    Status.NON_FINITE: "loss or gradient is not finite at the current point, or all along steepest "
    "descent from it",
    Status.UNBOUNDED: "the loss fell below the lower bound: does the objective have a minimum?",
    Status.EVALUATIONS: "the evaluations are used up; allow more, or take the best point",
    Status.ITERATIONS: "the iterations are used up; allow more, or take the best point",
}


class Solver(Protocol):
    """A resumable minimiser of a differentiable function; see the contract above."""

    def ask(self) -> Tensor:
        """Point (n,) at which loss and gradient are wanted; owned by the solver."""
        ...

    def tell(self, loss: float, gradient: Tensor) -> None:
        """Take in loss and gradient (n,) at the point that was asked for."""
        ...

    def rebase(self, loss: float, gradient: Tensor, steer: Tensor | None = None) -> None:
        """Go on from ``point`` with another objective, given its loss and gradient there.

        A search under way is given up, ``best`` starts anew, and a status that belongs to the old
        objective is cleared; the caps of iterations and evaluations stay.

        Args:
            loss: value at ``point``; with ``gradient`` it counts as an evaluation.
            gradient: gradient at ``point``, of the function which the search will be told.
            steer: gradient that the direction is made from, where it is another one.
        """
        ...

    @property
    def status(self) -> Status:
        """How the run stands."""
        ...

    @property
    def done(self) -> bool:
        """Whether the status is a final one."""
        ...

    @property
    def iterations(self) -> int:
        """Steps taken."""
        ...

    @property
    def evaluations(self) -> int:
        """Losses and gradients taken in."""
        ...

    @property
    def best(self) -> tuple[float, Tensor]:
        """Lowest loss and its point (live); a loss of NaN when none was finite."""
        ...

    @property
    def point(self) -> Tensor:
        """The current iterate (live): where the last step ended."""
        ...

    @property
    def loss(self) -> float:
        """Loss at ``point``; NaN before the first ``tell``."""
        ...

    @property
    def gradient(self) -> Tensor:
        """Gradient at ``point`` (live)."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything that a resume needs, as plain values and live tensors."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` stands; its tensors are copied."""
        ...
