"""The schemes, by the name that a job's YAML gives them. A new scheme is one file and one line here."""

from __future__ import annotations

from typing import Annotated, Any, Union

from pydantic import Field

from psopt.schemes.asp import Asp
from psopt.schemes.base import Scheme
from psopt.schemes.bsp import Bsp
from psopt.schemes.cg import Cg
from psopt.schemes.dane import Dane
from psopt.schemes.lbfgs_static import LbfgsStatic
from psopt.schemes.sandblaster import Sandblaster
from psopt.schemes.wasp import Wasp

SCHEMES: dict[str, type[Scheme]] = {
    "asp": Asp,
    "bsp": Bsp,
    "cg": Cg,
    "dane": Dane,
    "lbfgs_static": LbfgsStatic,
    "sandblaster": Sandblaster,
    "wasp": Wasp,
}

AnyScheme: Any = Annotated[Union[tuple(SCHEMES.values())], Field(discriminator="name")]  # noqa: UP007
"""Type of the ``scheme`` section: one of ``SCHEMES``, told apart by ``name``."""
