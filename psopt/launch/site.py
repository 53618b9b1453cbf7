"""The clusters that psopt knows: one YAML file each in `sites/`, and which of them this is."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import field
from functools import cache
from pathlib import Path

import yaml
from pydantic.dataclasses import dataclass

from psopt.config import STRICT, CommandsConfig
from psopt.launch.flavour import Flavour
from psopt.record import Commands

_FOLDER = Path(__file__).parent / "sites"


@dataclass(frozen=True, config=STRICT)
class Mpi:
    """What `srun --mpi` is set to, by the MPI whose ranks are started."""

    mpich: str
    openmpi: str
    other: str

    def of(self, flavour: Flavour) -> str:
        """The value for an MPI."""
        if flavour is Flavour.OPENMPI:
            return self.openmpi
        return self.mpich if flavour is Flavour.MPICH else self.other


@dataclass(frozen=True, config=STRICT)
class Site:
    """What is special about a cluster.

    Attributes:
        found_by: commands on PATH that only this site has; none: a job has to name it.
        commands: of its batch system.
        submit_options: options of `submit` for an answer that psopt can read.
        mpi: how ranks are started.
        gpus: option that asks for GPUs: `{per_node}` stands for those of a node, `{total}` for all.
        needs_partition: whether a job must say its partition.
        modules: environment modules of a job that names none.
        name: the file's.
    """

    found_by: tuple[str, ...]
    commands: Commands
    submit_options: tuple[str, ...]
    mpi: Mpi
    gpus: str
    needs_partition: bool
    modules: tuple[str, ...]
    name: str = field(default="", kw_only=True)

    def with_commands(self, changed: CommandsConfig) -> Site:
        """The same site with some of its commands replaced."""
        given = changed.model_dump(exclude_none=True)
        return dataclasses.replace(self, commands=dataclasses.replace(self.commands, **given))


@cache
def sites() -> dict[str, Site]:
    """All sites by name."""
    return {
        path.stem: Site(**yaml.safe_load(path.read_text(encoding="utf-8")), name=path.stem)
        for path in sorted(_FOLDER.glob("*.yaml"))
    }


def find_site() -> Site | None:
    """The site whose commands are on PATH; of several the one that is not plain Slurm."""
    found = [s for s in sites().values() if any(shutil.which(name) for name in s.found_by)]
    return min(found, key=lambda site: site.name == "slurm", default=None)
