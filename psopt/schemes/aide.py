"""AIDE: Inexact DANE, accelerated by a catalyst.

Reddi, Konecny, Richtarik, Poczos & Smola, "AIDE: fast and communication efficient distributed
optimization", 2016, algorithm 2 (after Lin, Mairal & Harchaoui, NIPS 2015)::

    w_{k+1} ~ argmin F(w) + tau/2 |w - y_k|^2        by rounds of Inexact DANE from w_k
    z_{k+1} solves z'^2 = (1 - z') z^2 + q z',       q = l2 / (l2 + tau), z_0 = 0.5
    y_{k+1} = w_{k+1} + beta (w_{k+1} - w_k),        beta = z (1 - z) / (z^2 + z')

On F_tau = F + tau/2 |w - y|^2 the global gradient is g + tau (w - y), and the local problem that of
F with mu + tau in the place of mu: workers need to know neither y nor tau. q is made of the penalty's
l2, a lower bound of the strong convexity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass as state
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.crew.base import Tally
from psopt.schemes.base import SECTION, Context
from psopt.schemes.dane import DaneScheme, DaneState
from psopt.schemes.local import LocalConfig, Positive, Solving


@state
class AideState(DaneState):
    """What AIDE keeps beside its shards.

    Attributes:
        center: y, (n,); None before the first round.
        last: w at the last change of y, (n,).
        z: of the recurrence.
        inner: rounds since the last change of y.
    """

    center: Tensor | None = None
    last: Tensor | None = None
    z: float = 0.5
    inner: int = 0


@dataclass(frozen=True, config=SECTION, kw_only=True)
class Aide(DaneScheme):
    """Accelerated Inexact DANE."""

    name: Annotated[Literal["aide"], Field(description="Chooses this scheme.")]
    tau: Annotated[
        Positive, Field(description="tau: weight of the catalyst, in units of F's curvature")
    ] = 0.1
    rounds: Annotated[
        int, Field(ge=1, description="Rounds of Inexact DANE between two changes of y")
    ] = 1
    local: Solving = LocalConfig(gamma=0.3, passes=6)

    def init(self, context: Context) -> AideState:
        """The center y is where w is."""
        context.publish()
        return self.fresh(context, AideState, proximal=self.mu + self.tau)

    def round(self, context: Context, state: Any) -> tuple[Tally, dict[str, Any]]:
        """One round of Inexact DANE on F_tau, and the change of y when it is due."""
        w = context.server.vectors[0].clone()
        if state.center is None:
            state.center, state.last = w.clone(), w.clone()
        pulled = state.gradient + (w - state.center) * self.tau
        way = self.way(context, state, pulled)
        context.place(w + way)
        tally = self.measure(context, state)
        state.inner += 1
        if state.inner == self.rounds:
            self._move_center(context, state)
        return tally, {"z": state.z, "gradient_norm": state.norm}

    def _move_center(self, context: Context, state: AideState) -> None:
        q = context.l2 / (context.l2 + self.tau)
        z, w = state.z, context.server.vectors[0].clone()
        b = z * z - q
        new = (-b + math.sqrt(b * b + 4 * z * z)) / 2
        beta = z * (1 - z) / (z * z + new)
        assert state.last is not None
        state.center = w + (w - state.last) * beta
        state.last, state.z, state.inner = w, new, 0
