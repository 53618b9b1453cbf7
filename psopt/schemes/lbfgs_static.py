"""L-BFGS over a fixed split: every worker evaluates 1/N of the batch, all wait for the slowest.

The typical parallel L-BFGS, the baseline beside Sandblaster (Dean et al., NIPS 2012, section 4.2).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from psopt.schemes.base import SECTION
from psopt.schemes.sandblaster import LbfgsScheme
from psopt.schemes.slicing import Batch, Evaluation


@dataclass(frozen=True, config=SECTION, kw_only=True)
class LbfgsStatic(LbfgsScheme):
    """L-BFGS; each worker has a fixed share of the slices."""

    name: Annotated[Literal["lbfgs_static"], Field(description="Chooses this scheme.")]

    def evaluate(self, batch: Batch) -> Evaluation:
        """Shares."""
        return batch.static()
