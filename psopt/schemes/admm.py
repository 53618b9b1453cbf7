"""Consensus ADMM.

Boyd, Parikh, Chu, Peleato & Eckstein, "Distributed optimization and statistical learning via the
alternating direction method of multipliers", 2011, section 7.1.1 (scaled form, with a regulariser).
With f_i the mean loss of shard i, weights s_i (its share of the samples) and the penalty in the
consensus variable z::

    x_i = argmin f_i(x) + rho/2 |x - z + u_i|^2
    z   = argmin l2/2 |z|^2 + sum_i s_i rho/2 |x_i - z + u_i|^2  =  rho / (rho + l2) sum_i s_i (x_i + u_i)
    u_i = u_i + x_i - z

The server's parameters are z; the coordinator keeps the u_i. A round has one exchange. The objective
at z, which ADMM itself does not need, is measured by one more, of losses alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass as state
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.crew.base import LocalSolve, Shard, Tally
from psopt.schemes.base import SECTION, Context
from psopt.schemes.exchange import account, check_solutions
from psopt.schemes.local import LocalConfig, Positive, Solving
from psopt.schemes.shards import ShardScheme, ShardState


@state
class AdmmState(ShardState):
    """What ADMM keeps beside its shards.

    Attributes:
        duals: u_i, (shards, n); None before the first round.
    """

    duals: Tensor | None = None


@dataclass(frozen=True, config=SECTION, kw_only=True)
class Admm(ShardScheme):
    """Consensus ADMM."""

    name: Annotated[Literal["admm"], Field(description="Chooses this scheme.")]
    rho: Annotated[
        Positive, Field(description="rho: weight of the consensus, in units of f's curvature")
    ] = 1.0

    local: Solving = LocalConfig(gamma=1e-3, passes=50)

    def init(self, context: Context) -> AdmmState:
        """All u_i are zero."""
        context.publish()
        return self.fresh(context, AdmmState)

    def round(self, context: Context, state: Any) -> tuple[Tally, dict[str, Any]]:
        """One round, measured at its end."""
        z = context.server.vectors[0].clone()
        parts = self.parts(context, state)
        if state.duals is None:
            state.duals = torch.zeros((state.shards, z.numel()), dtype=z.dtype)
        points = self._points(context, state, parts, z)
        total = torch.zeros_like(z)
        for (_, share), x, u in zip(parts, points, state.duals, strict=True):
            total.add_((x + u).mul_(share))
        new = total.mul_(self.rho / (self.rho + context.l2))
        for x, u in zip(points, state.duals, strict=True):
            u.add_(x).sub_(new)
        context.place(new)
        return self.observe(context, state), {}

    def _points(
        self, context: Context, state: AdmmState, parts: Sequence[tuple[Shard, float]], z: Tensor
    ) -> list[Tensor]:
        """x_i, in shard order: each solved from its own z - u_i, published under a version of its own."""
        crew, server, duals = context.crew, context.server, state.duals
        assert duals is not None
        crew.retire(server.version)
        anchors, tasks = [], []
        for (shard, _), dual in zip(parts, duals, strict=True):
            anchor = z - dual
            server.place(anchor)
            anchors.append(anchor)
            version = server.version
            crew.publish(version, (anchor, *server.vectors[1:]))
            method, mu, turn = self.local.method, self.rho, state.round
            tasks.append(LocalSolve(version, shard, 1.0, method, mu=mu, penalty=False, turn=turn))
        try:
            for k, reply in crew.each(tasks):
                account(context, [reply])
                check_solutions([reply])
                anchors[k].add_(reply.result.vectors[0])
        finally:
            for task in tasks:
                crew.retire(task.version)
            context.place(z)
        return anchors
