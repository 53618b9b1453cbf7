"""Sandblaster L-BFGS: the coordinator's solver, slices dealt out to whoever is free.

Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, section 4.2 and algorithm 2. The
paper shards the vector work of L-BFGS over parameter servers; here the coordinator does it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.optim.lbfgs import LBFGS, LBFGSOptions
from psopt.optim.solver import Solver
from psopt.schemes.base import SECTION
from psopt.schemes.batch import UNLIMITED, SolverScheme
from psopt.schemes.slicing import Batch, Evaluation


@dataclass(frozen=True, config=SECTION, kw_only=True)
class LbfgsScheme(SolverScheme):
    """L-BFGS on the coordinator; subclasses say how slices are dealt out."""

    free: ClassVar[frozenset[str]] = SolverScheme.free | {"memory"}

    memory: Annotated[int, Field(ge=1, le=1000, description="Pairs (s, y) that are kept")] = 10

    def solver(self, start: Tensor) -> Solver:
        """L-BFGS at ``start`` (n,)."""
        return LBFGS(
            start,
            LBFGSOptions(
                memory=self.memory,
                gradient_tolerance=self.gradient_tolerance,
                objective_tolerance=self.objective_tolerance,
                **UNLIMITED,
            ),
        )


@dataclass(frozen=True, config=SECTION, kw_only=True)
class Sandblaster(LbfgsScheme):
    """L-BFGS; small slices to whoever is free, copies of the last ones."""

    free: ClassVar[frozenset[str]] = LbfgsScheme.free | {"slices"}

    name: Annotated[Literal["sandblaster"], Field(description="Chooses this scheme.")]
    slices: Annotated[
        int | None,
        Field(
            ge=1,
            description="Consecutive slices (of train.batch_size samples) in one task; null: by the "
            "measured speed of the worker and cost of a message",
        ),
    ] = None

    @property
    def task_slices(self) -> int | None:
        """As configured."""
        return self.slices

    def evaluate(self, batch: Batch) -> Evaluation:
        """Slices to whoever is free."""
        return batch.dynamic()
