"""Nonlinear conjugate gradients on the coordinator; see ``psopt.optim.cg`` for the method."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from psopt.optim.cg import CG, Beta, CGOptions
from psopt.optim.solver import Solver
from psopt.schemes.base import SECTION
from psopt.schemes.batch import UNLIMITED, SolverScheme
from psopt.schemes.slicing import Batch, Evaluation


@dataclass(frozen=True, config=SECTION, kw_only=True)
class Cg(SolverScheme):
    """Nonlinear CG; slices dealt out either way."""

    free: ClassVar[frozenset[str]] = SolverScheme.free | {"slicing"}

    name: Annotated[Literal["cg"], Field(description="Chooses this scheme.")]
    beta: Annotated[
        Literal["pr+", "hager-zhang"], Field(description="How much of the last direction is kept")
    ] = "pr+"
    slicing: Annotated[
        Literal["dynamic", "static"],
        Field(
            description="dynamic: slices to whoever is free, as sandblaster; static: each worker has "
            "a fixed share, as lbfgs_static"
        ),
    ] = "dynamic"

    def solver(self, start: Tensor) -> Solver:
        """CG at ``start`` (n,)."""
        return CG(
            start,
            CGOptions(
                beta=Beta(self.beta),
                gradient_tolerance=self.gradient_tolerance,
                objective_tolerance=self.objective_tolerance,
                **UNLIMITED,
            ),
        )

    def evaluate(self, batch: Batch) -> Evaluation:
        """As configured."""
        return batch.dynamic() if self.slicing == "dynamic" else batch.static()
