"""WASP: staleness-weighted asynchronous updates with a periodic forced synchronisation.

Chen, Yan, Ye, Wu, Computer Engineering & Science, 2018; Ye et al., LNCS 11335, 2018. With sigma =
(server's version) - (version of the gradient), an update is multiplied by f(sigma), which falls
with sigma, and every T versions all replicas are forced onto the server's parameters. The papers
leave f, and whether the forced sync is a barrier, to the reader; this is a documented
reconstruction:

==================  =============================================================
symbol              here
==================  =============================================================
sigma               ``staleness``
f, inverse          1 / (1 + sigma)            (DynSGD: Jiang et al., SIGMOD 2017)
f, exponential      exp(-alpha * sigma)
f, polynomial       (1 + sigma) ** -alpha
f, none             1                          (ASP with forced syncs)
T                   ``sync_every``
==================  =============================================================

``weight_on: gradient`` multiplies the gradient before the optimizer sees it: with momentum, an old
gradient then weighs little in the momentum as well. Optimizers that divide the gradient by its own
size (Adam and its kin) cancel such a factor; for those ``weight_on: rate`` multiplies the learning
rate of the step instead (Zhang et al., IJCAI 2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass as state
from dataclasses import field
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from psopt.crew.base import Vectors
from psopt.schemes.asynchronous import Asynchronous
from psopt.schemes.base import SECTION, TRANSIENT, Context

WEIGHTS: dict[str, Callable[[int, float], float]] = {
    "inverse": lambda sigma, alpha: 1.0 / (1.0 + sigma),
    "exponential": lambda sigma, alpha: math.exp(-alpha * sigma),
    "polynomial": lambda sigma, alpha: (1.0 + sigma) ** -alpha,
    "none": lambda sigma, alpha: 1.0,
}


@state
class WaspState:
    """Where the next forced sync is.

    A resume starts every worker at the newest version, so ``frozen`` and ``behind`` do not outlive
    the process.

    Attributes:
        next_sync: version at which it is due.
        draining: at a barrier, waiting for the open replies.
        frozen: the snapshot of the last sync and its version.
        behind: workers that have not had the snapshot yet.
    """

    next_sync: int = 0
    draining: bool = False
    frozen: tuple[int, Vectors] | None = field(default=None, metadata=TRANSIENT)
    behind: set[int] = field(default_factory=set, metadata=TRANSIENT)


@dataclass(frozen=True, config=SECTION)
class Wasp(Asynchronous[WaspState]):
    """Asynchronous, weighted by staleness, with a forced sync every ``sync_every`` versions."""

    free: ClassVar[frozenset[str]] = frozenset(
        {"weight", "alpha", "sync_every", "sync", "weight_on"}
    )

    name: Annotated[Literal["wasp"], Field(description="Chooses this scheme.")]
    weight: Annotated[
        Literal["inverse", "exponential", "polynomial", "none"],
        Field(description="f: how the weight of an update falls with its staleness"),
    ] = "inverse"
    alpha: Annotated[
        float, Field(gt=0, description="Decay of the exponential and polynomial weights, no unit")
    ] = 1.0
    sync_every: Annotated[
        int | None, Field(ge=1, description="Versions from one forced sync to the next; null: none")
    ] = 200
    sync: Annotated[
        Literal["barrier", "snapshot"],
        Field(
            description="barrier: drain, then all start at one version; snapshot: each worker "
            "gets the frozen parameters at its next contact, nobody waits"
        ),
    ] = "barrier"
    weight_on: Annotated[
        Literal["gradient", "rate"],
        Field(description="Multiply the gradient, or the learning rate of the step"),
    ] = "gradient"

    def init(self, context: Context) -> WaspState:
        """Lend the workers the first version."""
        context.publish()
        return WaspState(next_sync=self.sync_every or 0)

    def factors(self, staleness: int) -> tuple[float, float]:
        """f(staleness), on the gradient or on the rate."""
        weight = WEIGHTS[self.weight](staleness, self.alpha)
        return (weight, 1.0) if self.weight_on == "gradient" else (1.0, weight)

    def updated(self, context: Context, state: WaspState) -> None:
        """Begin a forced sync when its version is reached."""
        version = context.server.version
        if state.frozen is not None:
            self._lend_frozen(context, state, state.frozen)
        if self.sync_every is None or version < state.next_sync:
            return
        state.next_sync = (version // self.sync_every + 1) * self.sync_every
        if self.sync == "barrier":
            state.draining = True
        else:
            state.frozen = version, tuple(vector.clone() for vector in context.server.vectors)
            state.behind = set(context.crew.workers)

    def version_for(self, context: Context, state: WaspState, worker: int) -> int | None:
        """At a barrier nobody starts before all have arrived; else snapshot or newest version."""
        if state.draining:
            if len(context.crew.idle()) < len(context.crew.workers):
                return None
            state.draining = False
        if worker in state.behind and state.frozen is not None:
            state.behind.discard(worker)
            return state.frozen[0]
        return context.server.version

    def _lend_frozen(self, context: Context, state: WaspState, frozen: tuple[int, Vectors]) -> None:
        """The server has left the snapshot's version: lend the copy under that number while somebody needs it."""
        version, vectors = frozen
        if version == context.server.version - 1:
            context.crew.publish(version, vectors)
        if not state.behind or context.server.version == state.next_sync:
            context.crew.retire(version)
            state.frozen = None
