"""What the methods on fixed shards share: the shards, global gradients, local solves, and the account.

A run has a number of shards, by default one a worker of its start, and keeps it. Tasks name shards,
and replies are reduced in shard order, so the result does not depend on who computes on which.

Work is counted in samples, and in gradient passes over the training set by ``epoch``: a gradient
counts once, a Hessian-vector product twice, a loss alone a third. A local solve uses the gradient of
its shard that the worker has just computed. Where there is none, as in the first round after a
resume, it is computed once more, with the same bits, and the account stays that of a run that was
not interrupted.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, field
from dataclasses import dataclass as state
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from pydantic import Field, field_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.crew.base import BatchPlan, Cut, Shard, ShardGradient, Tally
from psopt.optim.inner import norm
from psopt.optim.progress import lowest
from psopt.schemes.base import SECTION, TRANSIENT, Context, Diverged, Limit, Scheme, Spoilt, Update
from psopt.schemes.exchange import account, probe
from psopt.schemes.local import LocalConfig, Solving

_RISEN = 1e3  # a rise by so many times the objective of the start, or its first change, is lost
_ABSURD = 1e12  # and so is this one, the first included, times an objective of at least 1

StateT = TypeVar("StateT", bound="ShardState")


@state
class ShardState:
    """What every method on shards keeps.

    Attributes:
        shards: how many; fixed at the start of the run.
        round: rounds done.
        first: objective at the initial parameters.
        first_norm: of its gradient there, where that is measured.
        measured: objective at the server's parameters, NaN where it is not finite; None before it is
            measured.
        gradient: of the objective at the server's parameters, (n,); None before it is measured.
        base: version at which the workers computed it; -1 where these have gone.
        over: why the run has ended; empty while it goes on.
        buffers: of the start, by position; everything is computed with them.
        scale: change of the objective that is nothing unusual; None before the first round.
        settled: version whose buffers are up to date.
    """

    shards: int
    round: int = 0
    first: float | None = None
    first_norm: float = 0.0
    measured: float | None = None
    gradient: Tensor | None = None
    over: str = ""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    scale: float | None = None
    base: int = field(default=-1, metadata=TRANSIENT)
    settled: int = field(default=-1, metadata=TRANSIENT)

    @property
    def norm(self) -> float:
        """Euclidean norm of the gradient; NaN before it is measured."""
        return math.nan if self.gradient is None else norm(self.gradient)


@dataclass(frozen=True, config=SECTION, kw_only=True)
class ShardScheme(Scheme):
    """A method whose workers keep to shards of the training set; a step is a round."""

    needs_optimizer: ClassVar[bool] = False
    free: ClassVar[frozenset[str]] = frozenset({"shards"})

    shards: Annotated[
        int | None,
        Field(ge=1, description="Parts of the training set; null: the workers at the start"),
    ] = None
    cut: Annotated[
        Cut,
        Field(description="iid: parts of a random order; by_label: sorted by label first (skewed)"),
    ] = "iid"
    local: Solving = LocalConfig()

    @field_validator("local", mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Keys of the section that are left out are as the scheme has them."""
        return {**asdict(cls.local), **given} if isinstance(given, dict) else given

    @abstractmethod
    def round(self, context: Context, state: Any) -> tuple[Tally, dict[str, Any]] | None:
        """One round, measured at its end.

        Returns:
            The tally of that measurement, and more figures for the metrics. None, with
            ``state.over``, where there is no round to be made.
        """

    def init(self, context: Context) -> Any:
        """Nothing is measured yet."""
        context.publish()
        return self.fresh(context, ShardState)

    def fresh(self, context: Context, kind: type[StateT], **own: Any) -> StateT:
        """A state with what all have in it."""
        kept = {str(k): value.clone() for k, value in enumerate(context.server.vectors[1:])}
        return kind(self.number(context), buffers=kept, **own)

    def begin(self, context: Context, state: Any) -> bool:
        """Measure the initial parameters; whether they are as good as the job wants them."""
        self.observe(context, state)
        return context.begun(state.measured)

    def step(self, context: Context, state: Any, limit: Limit) -> Sequence[Update]:
        """One round."""
        if context.tickets.finished or state.over:
            return []
        self._use_first_buffers(context, state)
        before = context.tickets.position
        if state.first is None and (self.begin(context, state) or state.over):
            return []
        done = self.round(context, state)
        if done is None:
            return []
        state.round += 1
        tally, figures = done
        made = update(context, state, tally, before, figures)
        self.check(state, made)
        return [made]

    def _use_first_buffers(self, context: Context, state: Any) -> None:
        """Go back from the statistics of a test or a checkpoint: the objective is of the parameters alone."""
        w, *found = context.server.vectors
        own = tuple(state.buffers.values())
        if not all(map(torch.equal, found, own)):
            context.place(w.clone(), own)

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

    def batch_sizes(self, plan: BatchPlan, workers: int | None) -> set[int]:
        """Of the batches of each shard; those of a run that goes on were looked at when it began."""
        shards = self.shards or min(workers or plan.samples, plan.samples)
        if workers is None:
            return {plan.batch_size}
        counts = {plan.samples // shards, -(-plan.samples // shards)}
        return {size for count in counts for size in self._batch_sizes(count, plan.batch_size)}

    def _batch_sizes(self, count: int, size: int) -> set[int]:
        """Of the batches of a shard of ``count`` rows."""
        return {min(count, size), count % size or size}

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
        state.gradient, state.base = total.add_(w, alpha=context.l2), version
        finite = tally.finite and math.isfinite(state.norm)
        self._note(context, state, tally.loss / tally.count if finite else math.nan)
        return tally

    def observe(self, context: Context, state: ShardState) -> Tally:
        """Objective alone, for methods that need no global gradient; one round of messages."""
        rows = context.tickets.rows
        (loss,) = probe(context, self.parts(context, state), ())
        value = self._note(context, state, loss)
        return Tally(value * rows, None, rows)

    def _note(self, context: Context, state: ShardState, loss: float) -> float:
        """Keep the objective where the mean loss is ``loss``.

        Raises:
            Diverged: it is not finite, and this is the start.
        """
        value = loss + context.penalty()
        state.measured = value = value if math.isfinite(value) else math.nan
        if state.first is None:
            if math.isnan(value):
                raise Diverged("the loss or its gradient is not finite at the start")
            state.first = value
        return value

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
        size, change = abs(state.first), state.measured - state.first
        if state.scale is None:
            state.scale = max(size, abs(change))
        bearable = min(_RISEN * state.scale, _ABSURD * max(size, 1.0))
        if change <= bearable and state.measured >= lowest(size):
            return
        rounds = "1 round" if state.round == 1 else f"{state.round} rounds"
        lost = Spoilt(
            f"the objective is {state.measured:.3g} after {rounds}; at the start it was {state.first:.3g}"
        )
        lost.updates = made
        raise lost


def update(
    context: Context, state: ShardState, tally: Tally, before: float, figures: dict[str, Any]
) -> Update:
    """The update of a round, whose work is what was spent since ``before`` samples."""
    work = round(context.tickets.position - before)
    assert state.measured is not None
    rows = context.tickets.rows
    summed = Tally(state.measured * rows, tally.correct, rows)
    figures = {"objective": state.measured, **figures}
    return Update(context.server.version, summed, context.crew.now(), work=work, figures=figures)
