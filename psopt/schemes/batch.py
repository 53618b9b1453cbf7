"""Solvers of psopt.optim run by the coordinator: it asks and tells, the workers evaluate slices.

Only the coordinator has a line search, so all workers evaluate the same points the same number of
times. A step of the loop is one evaluation, and a checkpoint falls between any ``ask`` and ``tell``.

With ``batch: null`` the objective is that of the whole training set, and the run ends where the solver
does. With ``batch: n`` it changes every ``iterations`` steps to the next n samples of a seeded order.
At a new batch the current point is evaluated again, so a pair (s, y) or a conjugate direction is
always made from two gradients of one batch ("full overlap"; see ``psopt.optim.drivers``).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass as state
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.crew.base import Ticket
from psopt.optim.inner import dot, norm_max
from psopt.optim.solver import Solver, Status
from psopt.optim.tree import flatten_tree, unflatten_tree
from psopt.schemes.base import SECTION, TRANSIENT, Context, Diverged, Limit, Scheme, Update
from psopt.schemes.slicing import Batch, Evaluation, Pace

_ENDED_BY_CAPS = (Status.EVALUATIONS, Status.ITERATIONS)

Tolerance = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


@state
class SolverState:
    """Where the solver and the batches stand.

    Attributes:
        solver: asked and told.
        number: of the mini-batch, from 0.
        turn: iterations at which the next mini-batch follows.
        moved: this mini-batch has not been evaluated at the current point yet.
        largest: see ``psopt.schemes.slicing.Evaluation``.
        pace: of the workers.
    """

    solver: Solver = field(metadata=TRANSIENT)
    number: int = 0
    turn: int = 0
    moved: bool = False
    largest: float = 0.0
    pace: Pace = field(default_factory=Pace, metadata=TRANSIENT)


@dataclass(frozen=True, config=SECTION, kw_only=True)
class SolverScheme(Scheme):
    """What the schemes with a solver on the coordinator share."""

    needs_optimizer: ClassVar[bool] = False

    batch: Annotated[
        int | None, Field(ge=1, description="Samples of a mini-batch; null: the whole training set")
    ] = None
    iterations: Annotated[
        int, Field(ge=1, description="Steps of the solver on one mini-batch (with 'batch')")
    ] = 1
    gradient_tolerance: Annotated[
        Tolerance,
        Field(description="Converged when max |g| is at most this part of that at the start"),
    ] = 1e-6
    objective_tolerance: Annotated[
        Tolerance,
        Field(description="Converged when a step lowers F by at most this part of it; 0: never"),
    ] = 0.0

    @abstractmethod
    def solver(self, start: Tensor) -> Solver:
        """A fresh solver at ``start`` (n,)."""

    @abstractmethod
    def evaluate(self, batch: Batch) -> Evaluation:
        """Have the workers evaluate ``batch``."""

    @property
    def measures_objective(self) -> bool:
        """On the whole training set every evaluation does."""
        return self.batch is None

    @property
    def task_slices(self) -> int | None:
        """Slices a task; None: by the workers' pace."""
        return None

    def init(self, context: Context) -> SolverState:
        """A solver at the server's parameters."""
        context.publish()
        return SolverState(self.solver(context.server.vectors[0]), moved=self.batch is not None)

    def export(self, state: Any) -> dict[str, Any]:
        """The solver's tensors beside its plain values."""
        structure, tensors = flatten_tree(state.solver.state())
        named = {str(number): tensor for number, tensor in enumerate(tensors)}
        return {**super().export(state), "structure": structure, "tensors": named}

    def restore(self, state: Any, tree: Mapping[str, Any]) -> None:
        """Go on with the solver that was saved."""
        plain = {name: tree[name] for name in tree if name not in ("structure", "tensors")}
        super().restore(state, plain)
        tensors = [tree["tensors"][str(number)] for number in range(len(tree["tensors"]))]
        state.solver.load(unflatten_tree(tree["structure"], tensors))

    def step(self, context: Context, state: Any, limit: Limit) -> Sequence[Update]:
        """One evaluation: of the solver's trial, or of its point on a new batch."""
        solver: Solver = state.solver
        if context.tickets.finished or (solver.done and not state.moved):
            return []
        context.place(solver.point if state.moved else solver.ask())
        tickets = self._slices(context, state)
        evaluation = self.evaluate(
            Batch(context, tickets, state.largest, state.pace, self.task_slices)
        )
        state.largest = evaluation.largest or state.largest
        loss, gradient = _penalised(context, evaluation)
        if state.moved:
            solver.rebase(loss, gradient)
            state.moved, state.turn = False, solver.iterations + self.iterations
        else:
            solver.tell(loss, gradient)
        self._turn(state)
        context.tickets.spend(evaluation.tally.count)
        if not math.isfinite(solver.loss):
            raise Diverged("the loss or its gradient is not finite at the start")
        tally = replace(evaluation.tally, loss=loss * evaluation.tally.count)
        return [
            Update(context.server.version, tally, context.crew.now(), figures=self._figures(state))
        ]

    def home(self, context: Context, state: Any) -> None:
        """The best point of the whole set, or the current one of a course of mini-batches."""
        solver: Solver = state.solver
        if not math.isfinite(solver.loss):
            return
        wanted = solver.best[1] if self.batch is None else solver.point
        if not torch.equal(wanted, context.server.vectors[0]):
            context.place(wanted)
            context.settle_buffers()

    def reason(self, state: Any) -> str:
        """The solver's status, once it has ended."""
        solver: Solver = state.solver
        return str(solver.status) if solver.done else "epochs"

    def _turn(self, state: SolverState) -> None:
        """Go on to the next mini-batch after its share of steps, or where the solver is through with it."""
        solver = state.solver
        if self.batch is None or solver.status in _ENDED_BY_CAPS:
            return
        if solver.done or solver.iterations >= state.turn:
            state.number, state.moved = state.number + 1, True

    def _slices(self, context: Context, state: SolverState) -> list[Ticket]:
        """The slices of the batch: tickets of an epoch, as many as the batch has."""
        plan = context.tickets.plan(0)
        if self.batch is None:
            return [Ticket(0, k) for k in range(len(plan))]
        size = min(len(plan), max(1, self.batch // plan.batch_size))
        epoch, position = divmod(state.number, len(plan) // size)
        return [Ticket(epoch, k) for k in range(position * size, (position + 1) * size)]

    def _figures(self, state: SolverState) -> dict[str, Any]:
        solver = state.solver
        figures: dict[str, Any] = {
            "iteration": solver.iterations,
            "gradient_norm": norm_max(solver.gradient),
        }
        if self.batch is None:
            figures["objective"] = solver.loss
        return figures


def _penalised(context: Context, evaluation: Evaluation) -> tuple[float, Tensor]:
    """Loss and gradient with the job's penalty on the parameters."""
    parameters = context.server.vectors[0]
    if not context.l2 or not evaluation.tally.finite:
        return evaluation.loss, evaluation.gradient
    loss = evaluation.loss + context.l2 / 2 * dot(parameters, parameters)
    return loss, evaluation.gradient.add_(parameters, alpha=context.l2)
