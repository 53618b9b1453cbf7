"""Updates that must not touch the parameters, and the workers that they came from.

An update is bad when it is not finite, or, on request, when the norm of a gradient is many times the
median of those that came lately ("exploding": a flipped bit in an exponent, a corrupt sample).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from psopt.crew.base import Tally

_SEEN = 51  # norms whose median is taken
_ENOUGH = 5  # before any is too large


@dataclass(slots=True)
class Offences:
    """The account of bad updates. Saved with every checkpoint.

    Attributes:
        by: how many came from a worker, by its id as text.
        norms: of gradients that were good, newest last.
    """

    by: dict[str, int] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)

    def good(self, tallies: Sequence[Tally], factor: float | None) -> list[bool]:
        """Which gradients may be used; with a ``factor``, their norms are known and kept."""
        most = math.inf
        if factor is not None and len(self.norms) >= _ENOUGH:
            most = factor * statistics.median(self.norms)
        verdicts = [
            tally.finite and (tally.norm is None or tally.norm <= most) for tally in tallies
        ]
        if all(verdicts):
            self.norms += [tally.norm for tally in tallies if tally.norm is not None]
            del self.norms[:-_SEEN]
        return verdicts

    def blame(self, worker: int) -> int:
        """One more of ``worker``; how many there are."""
        self.by[str(worker)] = self.by.get(str(worker), 0) + 1
        return self.by[str(worker)]

    def state(self) -> dict[str, Any]:
        """Plain values."""
        return {"by": dict(self.by), "norms": list(self.norms)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        self.by, self.norms = dict(state["by"]), list(state["norms"])
