"""Asynchronous parallel SGD: every gradient counts in full, however stale it is.

Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012: Downpour SGD with n_fetch = n_push
= 1. With N equal workers the staleness of a gradient is N - 1 on average, and the method behaves
like one with a learning rate N times larger; momentum acts like more staleness still.
"""

from __future__ import annotations

from dataclasses import dataclass as state
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from psopt.schemes.asynchronous import Asynchronous
from psopt.schemes.base import SECTION, Context


@state
class AspState:
    """ASP keeps nothing between updates."""


@dataclass(frozen=True, config=SECTION)
class Asp(Asynchronous[AspState]):
    """Asynchronous: each gradient is applied as it comes."""

    name: Annotated[Literal["asp"], Field(description="Chooses this scheme.")]

    def init(self, context: Context) -> AspState:
        """Lend the workers the first version."""
        context.publish()
        return AspState()
