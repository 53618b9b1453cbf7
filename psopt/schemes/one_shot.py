"""One-shot averaging: every worker solves its own problem, the solutions are averaged once.

Zinkevich, Weimer, Smola & Li, "Parallelized stochastic gradient descent", NIPS 2010; Zhang, Duchi &
Wainwright, "Communication-efficient algorithms for statistical optimization", 2012, algorithms 1
(AVGM) and 2 (SAVGM): with w the average of solutions on whole shards, and v that of solutions on a
part r of each shard's samples, (w - r v) / (1 - r) has a bias of smaller order.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.crew.base import LocalSolve, Tally, part_of
from psopt.schemes.base import SECTION, Context
from psopt.schemes.exchange import descend
from psopt.schemes.local import LocalConfig, Solving
from psopt.schemes.shards import ShardScheme, ShardState


@dataclass(frozen=True, config=SECTION, kw_only=True)
class OneShot(ShardScheme):
    """Parameter averaging, once."""

    name: Annotated[Literal["one_shot"], Field(description="Chooses this scheme.")]
    part: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="r: part of each shard for the bias correction; null: without it",
        ),
    ] = None
    local: Solving = LocalConfig(gamma=1e-6, passes=500)

    def _batch_sizes(self, count: int, size: int) -> set[int]:
        """Those of the part, too."""
        sizes = super()._batch_sizes(count, size)
        if self.part is not None:
            sizes |= super()._batch_sizes(part_of(count, self.part), size)
        return sizes

    def round(self, context: Context, state: Any) -> tuple[Tally, dict[str, Any]]:
        """The one round."""
        way = self._solve(context, state, 1.0)
        if self.part is not None:
            way.sub_(self._solve(context, state, self.part), alpha=self.part).div_(1.0 - self.part)
        context.place(context.server.vectors[0] + way)
        state.over = "one shot"
        return self.observe(context, state), {}

    def _solve(self, context: Context, state: ShardState, part: float) -> Tensor:
        """Mean way from the start to the solutions on ``part`` of each shard."""
        version = context.server.version
        tasks = [
            LocalSolve(version, shard, share, self.local.method, part=part)
            for shard, share in self.parts(context, state)
        ]
        return descend(context, tasks)
