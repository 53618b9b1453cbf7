"""Inexact DANE: DANE with local problems that are solved roughly, on a budget.

Reddi, Konecny, Richtarik, Poczos & Smola, "AIDE: fast and communication efficient distributed
optimization", 2016, algorithm 1: a local solution may be off by |grad h_i(w_i)| <= gamma |grad h_i(w_t)|.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from psopt.schemes.base import SECTION
from psopt.schemes.dane import GuardedDane
from psopt.schemes.local import LocalConfig, Solving


@dataclass(frozen=True, config=SECTION, kw_only=True)
class InexactDane(GuardedDane):
    """DANE on a small budget of local passes."""

    name: Annotated[Literal["inexact_dane"], Field(description="Chooses this scheme.")]
    local: Solving = LocalConfig(gamma=0.3, passes=6)
