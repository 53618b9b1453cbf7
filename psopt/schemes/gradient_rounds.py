"""Methods on fixed shards whose rounds begin with the global gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass

from psopt.schemes.base import SECTION, Context, Limit, Update
from psopt.schemes.shards import ShardScheme, ShardState

HIDDEN = "precision limit: rounding hides what a round would lower the objective"
_CONVERGED = "converged (gradient)"


@dataclass(frozen=True, config=SECTION, kw_only=True)
class GradientScheme(ShardScheme):
    """A method whose rounds begin with the global gradient."""

    free: ClassVar[frozenset[str]] = ShardScheme.free | {"gradient_tolerance"}

    gradient_tolerance: Annotated[
        float,
        Field(
            ge=0,
            lt=1,
            description="Converged when the Euclidean norm of g is at most this part of that at the "
            "start; 0: never",
        ),
    ] = 0.0

    def begin(self, context: Context, state: Any) -> bool:
        """Objective and gradient at the initial parameters."""
        self.measure(context, state)
        state.first_norm = state.norm
        self._close(state)
        return context.begun(state.measured)

    def step(self, context: Context, state: Any, limit: Limit) -> Sequence[Update]:
        """One round, and whether it was the last."""
        made = super().step(context, state, limit)
        if made:
            self._close(state)
        return made

    def restore(self, state: Any, tree: Mapping[str, Any]) -> None:
        """Go on, unless the run has converged by the tolerance of now."""
        super().restore(state, tree)
        if state.gradient is not None and state.over in ("", _CONVERGED):
            state.over = ""
            self._close(state)

    def _close(self, state: ShardState) -> None:
        if state.norm <= self.gradient_tolerance * state.first_norm:
            state.over = _CONVERGED


def hides(state: ShardState, slope: float) -> bool:
    """Whether the rounding of the objective hides what it would fall by along a direction of this slope."""
    assert state.measured is not None
    assert state.gradient is not None
    return -torch.finfo(state.gradient.dtype).eps * abs(state.measured) <= slope <= 0.0
