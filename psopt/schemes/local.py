"""The section of a job that says how workers solve their local problems."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from psopt.crew.base import LocalMethod
from psopt.schemes.base import SECTION

_MOST = 1e30  # beyond 3e38 a factor is no float32
Positive = Annotated[float, Field(gt=0, le=_MOST, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=_MOST, allow_inf_nan=False)]


@dataclass(frozen=True, config=SECTION, kw_only=True)
class LocalConfig:
    """How workers solve their local problems."""

    solver: Annotated[
        Literal["lbfgs", "cg", "svrg", "sgd"],
        Field(
            description="lbfgs; cg: conjugate gradients on the quadratic model; svrg and sgd: with 'lr'"
        ),
    ] = "lbfgs"
    gamma: Annotated[
        float,
        Field(ge=0, lt=1, description="lbfgs, cg: stop at this part of the first gradient's norm"),
    ] = 0.1
    passes: Annotated[int, Field(ge=1, description="Most passes over the shard in a solve")] = 20
    lr: Annotated[Positive, Field(description="Learning rate of svrg and sgd (no unit)")] = 0.05

    @model_validator(mode="after")
    def _check_passes(self) -> Self:
        if self.solver in ("cg", "svrg") and self.passes < 2:
            raise ValueError(
                f"solver {self.solver} takes two passes at a time: 'passes' must be at least 2"
            )
        return self

    @property
    def method(self) -> LocalMethod:
        """For the wire."""
        return LocalMethod(self.solver, self.gamma, self.passes, self.lr)


Solving = Annotated[
    LocalConfig, Field(description="The solver of local problems, and when it stops")
]
