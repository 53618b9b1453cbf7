"""The checks of `psopt doctor` on Slurm: its commands, and how srun starts MPI ranks."""

from __future__ import annotations

import re
import shutil

from psopt.launch.finding import Finding, Level
from psopt.launch.flavour import Flavour
from psopt.launch.probe import run_with_deadline

COMMANDS = ("sbatch", "srun", "squeue", "scancel")
_SECONDS = 15.0
_PLUGIN = re.compile(r"\b(?:none|pmi2|pmix(?:_v\d+)?|cray_shasta|openmpi)\b")

# What a flavour's ranks can ask about their world, the best first.
_WANTED = {Flavour.MPICH: ("pmi2", "pmix", "cray_shasta"), Flavour.OPENMPI: ("pmix",)}


def check_commands() -> Finding:
    """Which of Slurm's commands are on PATH?"""
    title = "Slurm"
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if len(missing) == len(COMMANDS):
        return Finding(Level.OK, title, "not on this machine; runs start with mpirun")
    if missing:
        detail = f"not on PATH: {', '.join(missing)}"
        remedy = "load the cluster's Slurm module, or go to a login node"
        return Finding(Level.WARN, title, detail, remedy)
    return Finding(Level.OK, title, f"{', '.join(COMMANDS)} found")


def check_srun(flavour: Flavour) -> list[Finding]:
    """Ask srun for its MPI plugins, and pick the `--mpi` for this flavour; nothing without srun."""
    srun = shutil.which("srun")
    if srun is None:
        return []
    title = "srun --mpi"
    try:
        outcome = run_with_deadline([srun, "--mpi=list"], _SECONDS)
    except OSError as error:
        return [Finding(Level.WARN, title, f"cannot execute {srun}: {error.strerror}")]
    if outcome.status is None:
        detail = f"srun --mpi=list gave no answer within {_SECONDS:g} s"
        return [Finding(Level.WARN, title, detail, "see whether the Slurm controller is up: sinfo")]
    # Older releases list the plugins on stderr.
    return [judge(outcome.stdout + outcome.stderr, flavour)]


def judge(listing: str, flavour: Flavour) -> Finding:
    """Say which of the listed plugins starts ranks of this flavour."""
    title = "srun --mpi"
    plugins = tuple(dict.fromkeys(_PLUGIN.findall(listing)))
    offered = ", ".join(plugins) or "none"
    wanted = _WANTED.get(flavour)
    if wanted is None:
        return Finding(Level.OK, title, f"this Slurm has {offered}; see your MPI's pages")
    for name in wanted:
        if any(plugin == name or plugin.startswith(f"{name}_v") for plugin in plugins):
            detail = f"use srun --mpi={name} for {flavour.value} (this Slurm has {offered})"
            return Finding(Level.OK, title, detail)
    detail = f"{flavour.value} needs {' or '.join(wanted)}; this Slurm has {offered}"
    remedy = (
        "with the wrong plugin each process sees a world of 1: start the ranks with mpirun inside "
        "the batch job, or use an MPI that was built for this Slurm"
    )
    return Finding(Level.WARN, title, detail, remedy)
