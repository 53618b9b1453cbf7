"""One-shot averaging: every worker solves its own problem, the solutions are averaged once.

Zinkevich, Weimer, Smola & Li, "Parallelized stochastic gradient descent", NIPS 2010; Zhang, Duchi &
Wainwright, "Communication-efficient algorithms for statistical optimization", 2012, algorithms 1
(AVGM) and 2 (SAVGM): with w the average of solutions on whole shards, and v that of solutions on a
part r of each shard's samples, (w - r v) / (1 - r) has a bias of smaller order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.crew.base import LocalSolve, Shard, Tally, part_of
from psopt.schemes.base import SECTION, Context
from psopt.schemes.exchange import descend
from psopt.schemes.local import LocalConfig, Solving
from psopt.schemes.shards import ShardScheme


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
        parts = self.parts(context, state)
        if self.part is None:
            way = self._solve(context, parts, 1.0)
        else:  # r of a shard is the part of its rows that is really taken
            rows = [shard.count(context.tickets.rows) for shard, _ in parts]
            taken = [part_of(count, self.part) / count if count > 1 else 0.0 for count in rows]
            pairs = list(zip(parts, taken, strict=True))
            way = self._solve(context, [(k, share / (1.0 - r)) for (k, share), r in pairs], 1.0)
            some = [(k, share * r / (1.0 - r)) for (k, share), r in pairs]
            way.sub_(self._solve(context, some, self.part))
        context.place(context.server.vectors[0] + way)
        state.over = "one shot"
        return self.observe(context, state), {}

    def _solve(
        self, context: Context, shares: Sequence[tuple[Shard, float]], part: float
    ) -> Tensor:
        """Sum of the ways from the start to the solutions on ``part`` of each shard, times its share."""
        version = context.server.version
        tasks = [
            LocalSolve(version, shard, share, self.local.method, part=part)
            for shard, share in shares
        ]
        return descend(context, tasks)
