"""The schemes, by the name that a job's YAML gives them. A new scheme is one file and one line here."""

from __future__ import annotations

from typing import Annotated, Any, Union

from pydantic import Field

from psopt.schemes.admm import Admm
from psopt.schemes.aide import Aide
from psopt.schemes.asp import Asp
from psopt.schemes.base import Scheme
from psopt.schemes.bsp import Bsp
from psopt.schemes.cg import Cg
from psopt.schemes.dane import Dane
from psopt.schemes.giant import Giant
from psopt.schemes.inexact_dane import InexactDane
from psopt.schemes.lbfgs_static import LbfgsStatic
from psopt.schemes.one_shot import OneShot
from psopt.schemes.sandblaster import Sandblaster
from psopt.schemes.wasp import Wasp

SCHEMES: dict[str, type[Scheme]] = {
    "admm": Admm,
    "aide": Aide,
    "asp": Asp,
    "bsp": Bsp,
    "cg": Cg,
    "dane": Dane,
    "giant": Giant,
    "inexact_dane": InexactDane,
    "lbfgs_static": LbfgsStatic,
    "one_shot": OneShot,
    "sandblaster": Sandblaster,
    "wasp": Wasp,
}

AnyScheme: Any = Annotated[Union[tuple(SCHEMES.values())], Field(discriminator="name")]  # noqa: UP007
"""Type of the ``scheme`` section: one of ``SCHEMES``, told apart by ``name``."""
