"""What the methods on fixed shards share: the shards, global gradients, local solves, and the account.

A run has a number of shards, by default one a worker of its start, and keeps it. Tasks name shards,
and replies are reduced in shard order, so the result does not depend on who computes on which.

Work is counted in samples, and in gradient passes over the training set by ``epoch``: a gradient
counts once, a Hessian-vector product twice, a loss alone a third. A local solve uses the gradient of
its shard that the worker has just computed; where there is none, as in the first round after a
resume, it computes it once more, with the same bits, and that counts too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass as state
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.crew.base import Cut, LocalMethod, LocalSolve, Probe, Reply, Shard, ShardGradient, Tally
from psopt.optim.inner import dot
from psopt.schemes.base import SECTION, TRANSIENT, Context, Diverged, Scheme, Spoilt, Update

_RISEN = 1e3  # an objective this many times that of the start is lost

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, config=SECTION, kw_only=True)
class LocalConfig:
    """How workers solve their local problems."""

    solver: Annotated[
        Literal["lbfgs", "cg", "svrg", "sgd"],
        Field(
            description="lbfgs; cg: conjugate gradients on the quadratic model; svrg and sgd: with 'lr'"
        ),
    ] = "lbfgs"
    gamma: Annotated[
        float,
        Field(ge=0, lt=1, description="lbfgs, cg: stop at this part of the first gradient's norm"),
    ] = 0.1
    passes: Annotated[int, Field(ge=1, description="Most passes over the shard in a solve")] = 20
    lr: Annotated[Positive, Field(description="Learning rate of svrg and sgd (no unit)")] = 0.05

    @model_validator(mode="after")
    def _check_passes(self) -> Self:
        if self.solver in ("cg", "svrg") and self.passes < 2:
            raise ValueError(
                f"solver {self.solver} takes two passes at a time: 'passes' must be at least 2"
            )
        return self

    @property
    def method(self) -> LocalMethod:
        """For the wire."""
        return LocalMethod(self.solver, self.gamma, self.passes, self.lr)


@state
class ShardState:
    """What every method on shards keeps.

    Attributes:
        shards: how many; fixed at the start of the run.
        round: rounds done.
        first: objective at the initial parameters.
        measured: objective at the server's parameters, NaN where it is not finite; None before it is
            measured.
        gradient: of the objective at the server's parameters, (n,); None before it is measured.
        base: version at which the workers computed it.
        over: why the run has ended; empty while it goes on.
        settled: version whose buffers are up to date.
    """

    shards: int
    round: int = 0
    first: float | None = None
    measured: float | None = None
    gradient: Tensor | None = None
    over: str = ""
    base: int = field(default=-1, metadata=TRANSIENT)
    settled: int = field(default=-1, metadata=TRANSIENT)

    @property
    def norm(self) -> float:
        """Euclidean norm of the gradient; NaN before it is measured."""
        return math.nan if self.gradient is None else norm(self.gradient)


@dataclass(frozen=True, config=SECTION, kw_only=True)
class ShardScheme(Scheme):
    """A method whose workers keep to shards of the training set."""

    needs_optimizer: ClassVar[bool] = False

    shards: Annotated[
        int | None,
        Field(ge=1, description="Parts of the training set; null: the workers at the start"),
    ] = None
    cut: Annotated[
        Cut,
        Field(description="iid: parts of a random order; by_label: sorted by label first (skewed)"),
    ] = "iid"
    gradient_tolerance: Annotated[
        float,
        Field(ge=0, lt=1, description="Stop when |g| is at most this part of that at the start"),
    ] = 0.0
    local: Annotated[
        LocalConfig, Field(description="The solver of local problems, and when it stops")
    ] = LocalConfig()

    @property
    def measures_objective(self) -> bool:
        """Every round does."""
        return True

    def home(self, context: Context, state: Any) -> None:
        """Statistics of buffers that belong to the parameters."""
        if state.settled != context.server.version:
            context.settle_buffers()
            state.settled = context.server.version

    def reason(self, state: Any) -> str:
        """Why there is no further round."""
        return state.over or "epochs"

    def number(self, context: Context) -> int:
        """Shards of a run that starts now; by default no more than there are samples."""
        return self.shards or min(len(context.crew.workers), context.tickets.rows)

    def parts(self, context: Context, state: ShardState) -> list[tuple[Shard, float]]:
        """All shards, with their share of the samples."""
        rows, seed = context.tickets.rows, context.tickets.plan(0).seed
        shards = [Shard(k, state.shards, self.cut, seed) for k in range(state.shards)]
        return [(shard, shard.count(rows) / rows) for shard in shards]

    def measure(self, context: Context, state: ShardState) -> Tally:
        """Objective and gradient at the server's parameters into ``state``; one round of messages."""
        version, w = context.server.version, context.server.vectors[0]
        tasks = [ShardGradient(version, *part) for part in self.parts(context, state)]
        total = torch.empty_like(w)
        tally = account(context, context.crew.reduce(tasks, (total,)))
        state.measured = tally.loss / tally.count + context.l2 / 2 * dot(w, w)
        state.gradient, state.base = total.add_(w, alpha=context.l2), version
        if not tally.finite or not math.isfinite(state.measured):
            state.measured = math.nan
        if state.first is None:
            if math.isnan(state.measured):
                raise Diverged("the loss or its gradient is not finite at the start")
            state.first = state.measured
            context.begun(state.measured)
        return tally

    def observe(self, context: Context, state: ShardState) -> Tally:
        """Objective alone, for methods that need no global gradient; one round of messages."""
        w, rows = context.server.vectors[0], context.tickets.rows
        (loss,) = probe(context, self.parts(context, state), ())
        state.measured = loss + context.l2 / 2 * dot(w, w)
        if state.first is None:
            state.first = state.measured
            context.begun(state.measured)
        return Tally(state.measured * rows, None, rows)

    def check(self, state: ShardState, *made: Update) -> None:
        """See whether the course is lost.

        Args:
            state: after a round.
            made: updates of that round, which are recorded all the same.

        Raises:
            Diverged: it is.
        """
        assert state.measured is not None
        assert state.first is not None
        if not state.measured <= _RISEN * max(abs(state.first), 1e-300):
            lost = Spoilt(
                f"the objective is {state.measured:.3g} after {state.round} rounds; at the start it "
                f"was {state.first:.3g}"
            )
            lost.updates = made
            raise lost

    def close(self, state: ShardState, first_norm: float) -> None:
        """Note that the gradient is small enough."""
        if state.norm <= self.gradient_tolerance * first_norm:
            state.over = "converged (gradient)"


def norm(vector: Tensor) -> float:
    """Euclidean norm of (n,), summed in float64."""
    return math.sqrt(dot(vector, vector))


def account(context: Context, replies: Sequence[Reply]) -> Tally:
    """The sum of the replies' tallies, in order; their samples are spent."""
    tallies = [tally for reply in replies for tally in reply.result.tallies]
    correct = [tally.correct for tally in tallies if tally.correct is not None]
    count = sum(tally.count for tally in tallies)
    context.tickets.spend(count)
    return Tally(
        math.fsum(tally.loss for tally in tallies),
        sum(correct) if len(correct) == len(tallies) else None,
        count,
        all(tally.finite for tally in tallies),
    )


def descend(context: Context, tasks: Sequence[LocalSolve]) -> tuple[Tensor, Tally]:
    """The weighted sum of the ways of local solves, (n,), in task order."""
    total = torch.empty_like(context.server.vectors[0])
    tally = account(context, context.crew.reduce(tasks, (total,)))
    return total, tally


def probe(
    context: Context, parts: Sequence[tuple[Shard, float]], steps: Sequence[float]
) -> list[float]:
    """Mean loss, without the penalty, at the published parameters + each step * the published direction."""
    version, tries = context.server.version, tuple(steps)
    tasks = [Probe(version, shard, tries) for shard, _ in parts]
    replies = context.crew.gather(tasks)
    rows, columns = context.tickets.rows, range(max(1, len(tries)))
    losses = [math.fsum(r.result.tallies[k].loss for r in replies) / rows for k in columns]
    context.tickets.spend(round(rows * len(columns) / 3))
    return losses


def update(
    context: Context, state: ShardState, tally: Tally, before: float, **figures: Any
) -> Update:
    """The update of a round, whose work is what was spent since ``before`` samples."""
    work = round(context.tickets.position - before)
    assert state.measured is not None
    rows = context.tickets.rows
    summed = Tally(state.measured * rows, tally.correct, rows)
    figures = {"objective": state.measured, **figures}
    return Update(context.server.version, summed, context.crew.now(), work=work, figures=figures)
