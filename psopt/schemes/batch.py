"""Solvers of psopt.optim run by the coordinator: it asks and tells, the workers evaluate slices.

Only the coordinator has a line search, so all workers evaluate the same points the same number of
times. A step of the loop is one evaluation, and a checkpoint falls between any ``ask`` and ``tell``.

With ``batch: null`` the objective is that of the whole training set, and the run ends where the solver
does. The model that is tested and saved is the one of the lowest objective, and that objective is on
record; ``gradient_max``, max |g|, is that at the solver's current point.

With ``batch: n`` it changes every ``iterations`` steps to the next n samples of a seeded order.
At a new batch the current point is evaluated again, so a pair (s, y) or a conjugate direction is
always made from two gradients of one batch ("full overlap"; see ``psopt.optim.drivers``).

Slices are evaluated with the buffers of the start, whatever the server's are by now: the objective
depends on the parameters alone. Statistics (BatchNorm) that go with them are made when they are wanted.
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

from psopt.crew.base import BatchPlan, Ticket, Vectors
from psopt.optim.inner import norm_max
from psopt.optim.solver import Solver, Status
from psopt.optim.tree import flatten_tree, unflatten_tree
from psopt.schemes.base import SECTION, TRANSIENT, Context, Diverged, Limit, Scheme, Spoilt, Update
from psopt.schemes.pace import Pace
from psopt.schemes.quanta import Scale
from psopt.schemes.slicing import Batch, Evaluation

UNLIMITED: Any = {"max_iterations": 1 << 62, "max_evaluations": 1 << 62}
"""Options of a solver whose run is bounded by its job."""

Tolerance = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


@state
class SolverState:
    """Where the solver and the batches stand.

    Attributes:
        solver: asked and told.
        buffers: of the start; slices are evaluated with them.
        number: of the mini-batch, from 0.
        turn: iterations at which the next mini-batch follows.
        moved: this mini-batch has not been evaluated at the current point yet.
        walled: mini-batches in a row at which the solver saw nothing finite but its own point.
        largest: of the last evaluation; see ``psopt.schemes.slicing.Evaluation``.
        pace: of the workers.
        settled: version at which the server's buffers are those of its parameters.
    """

    solver: Solver = field(metadata=TRANSIENT)
    buffers: Vectors = field(metadata=TRANSIENT)
    number: int = 0
    turn: int = 0
    moved: bool = False
    walled: int = 0
    largest: float = 0.0
    pace: Pace = field(default_factory=Pace, metadata=TRANSIENT)
    settled: int = field(default=-1, metadata=TRANSIENT)


@dataclass(frozen=True, config=SECTION, kw_only=True)
class SolverScheme(Scheme):
    """What the schemes with a solver on the coordinator share."""

    needs_optimizer: ClassVar[bool] = False
    free: ClassVar[frozenset[str]] = frozenset({"gradient_tolerance", "objective_tolerance"})

    batch: Annotated[
        int | None,
        Field(
            ge=1,
            description="Samples of a mini-batch, a multiple of the slices (train.batch_size); null: the "
            "whole training set",
        ),
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

    def batch_sizes(self, plan: BatchPlan, workers: int | None) -> set[int]:
        """Of the slices; those of an epoch that make no whole mini-batch are left out."""
        size, batches = self._batches(plan)
        return {plan.count(0), plan.count(size * batches - 1)}

    def init(self, context: Context) -> SolverState:
        """A solver at the server's parameters."""
        context.publish()
        start, *buffers = context.server.vectors
        kept = tuple(buffer.clone() for buffer in buffers)
        return SolverState(self.solver(start), kept, moved=self.batch is not None)

    def export(self, state: Any) -> dict[str, Any]:
        """The solver's tensors beside its plain values."""
        whole = {"solver": state.solver.state(), "buffers": list(state.buffers)}
        structure, tensors = flatten_tree(whole)
        named = {str(number): tensor for number, tensor in enumerate(tensors)}
        return {**super().export(state), "structure": structure, "tensors": named}

    def restore(self, state: Any, tree: Mapping[str, Any]) -> None:
        """Go on with the solver that was saved."""
        plain = {name: tree[name] for name in tree if name not in ("structure", "tensors")}
        super().restore(state, plain)
        whole = _whole(tree)
        state.solver.load(whole["solver"])
        state.buffers = tuple(buffer.clone() for buffer in whole["buffers"])

    def check_saved(self, tree: Mapping[str, Any], parameters: Tensor) -> None:
        """Whether the solver that was saved is of the same kind and options.

        Raises:
            ValueError: it is not.
        """
        try:
            self.solver(parameters).load(_whole(tree)["solver"])
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"scheme {self.name} cannot go on with the checkpoint's state ({error}): leave the "
                "scheme as it was, or start a new run"
            ) from error

    def step(self, context: Context, state: Any, limit: Limit) -> Sequence[Update]:
        """One evaluation: of the solver's trial, or of its point on a new batch."""
        solver: Solver = state.solver
        if context.tickets.finished or (solver.done and not state.moved):
            return []
        before = context.tickets.position
        context.place(solver.point if state.moved else solver.ask(), state.buffers)
        evaluation = self._evaluate(context, state)
        state.largest = evaluation.largest or state.largest
        loss, gradient = _penalised(context, evaluation)
        if state.moved:
            solver.rebase(loss, gradient)
            state.moved, state.turn = False, solver.iterations + self.iterations
        else:
            solver.tell(loss, gradient)
        if not math.isfinite(solver.loss):
            where = f"mini-batch {state.number}" if self.batch is not None else "the start"
            raise Diverged(f"the loss or its gradient is not finite at {where}")
        context.tickets.spend(evaluation.tally.count)
        figures, status = self._figures(state), solver.status
        self._turn(state)
        tally = replace(evaluation.tally, loss=loss * evaluation.tally.count)
        work = context.tickets.position - before
        made = [
            Update(context.server.version, tally, context.crew.now(), figures=figures, work=work)
        ]
        everywhere = self._batches(context.tickets.plan(0))[1] if self.batch is not None else 1
        if status is Status.UNBOUNDED or state.walled >= everywhere:
            lost = Spoilt(f"{status}: {status.advice}")
            lost.updates = made
            raise lost
        return made

    def home(self, context: Context, state: Any) -> None:
        """The best point of the whole set, or the current one of a course of mini-batches."""
        solver: Solver = state.solver
        if state.settled == context.server.version or not math.isfinite(solver.loss):
            return
        wanted = solver.best[1] if self.batch is None else solver.point
        if state.buffers or not torch.equal(wanted, context.server.vectors[0]):
            context.place(wanted, state.buffers)
        context.settle_buffers()
        state.settled = context.server.version

    def reason(self, state: Any) -> str:
        """The solver's status, once it has ended."""
        solver: Solver = state.solver
        return str(solver.status) if solver.done and not state.moved else "epochs"

    def _evaluate(self, context: Context, state: SolverState) -> Evaluation:
        """Loss and gradient at the server's parameters.

        Where entries are larger or smaller by far than those of the last evaluation, it is done again, and
        counts again.
        """
        tickets = self._slices(context, state)
        dtype = context.server.vectors[0].dtype
        largest: float | None = state.largest or 1.0 / len(tickets)
        while largest is not None:
            scale = Scale.around(largest, len(tickets), dtype)
            batch = Batch(context, tickets, scale, state.pace, self.task_slices)
            evaluation = self.evaluate(batch)
            largest = scale.better(evaluation.largest)
            if largest is not None:  # what is still on its way belongs to another version then
                context.tickets.spend(evaluation.tally.count)
                context.place(context.server.vectors[0])
        return evaluation

    def _turn(self, state: SolverState) -> None:
        """Go on to the next mini-batch after its share of steps, or where the solver is through with it."""
        solver = state.solver
        if not solver.done and solver.iterations < state.turn:
            return
        state.walled = state.walled + 1 if solver.status is Status.NON_FINITE else 0
        if self.batch is not None:
            state.number, state.moved = state.number + 1, True

    def _slices(self, context: Context, state: SolverState) -> list[Ticket]:
        """The slices of the batch: tickets of an epoch, as many as the batch has."""
        plan = context.tickets.plan(0)
        if self.batch is None:
            return [Ticket(0, k) for k in range(len(plan))]
        size, batches = self._batches(plan)
        epoch, position = divmod(state.number, batches)
        return [Ticket(epoch, k) for k in range(position * size, (position + 1) * size)]

    def _batches(self, plan: BatchPlan) -> tuple[int, int]:
        """Slices of a mini-batch, and how many mini-batches an epoch has."""
        size = len(plan) if self.batch is None else self.batch // plan.batch_size
        return size, len(plan) // size

    def _figures(self, state: SolverState) -> dict[str, Any]:
        solver = state.solver
        figures: dict[str, Any] = {
            "iteration": solver.iterations,
            "gradient_max": norm_max(solver.gradient),
        }
        if self.batch is None:
            figures["objective"] = solver.best[0]
        return figures


def _whole(tree: Mapping[str, Any]) -> Any:
    """What ``SolverScheme.export`` took apart."""
    tensors = [tree["tensors"][str(number)] for number in range(len(tree["tensors"]))]
    return unflatten_tree(tree["structure"], tensors)


def _penalised(context: Context, evaluation: Evaluation) -> tuple[float, Tensor]:
    """Loss and gradient with the job's penalty on the parameters."""
    if not context.l2 or not evaluation.tally.finite:
        return evaluation.loss, evaluation.gradient
    gradient = evaluation.gradient.add_(context.server.vectors[0], alpha=context.l2)
    return evaluation.loss + context.penalty(), gradient
