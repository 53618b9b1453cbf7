"""The job scripts in `slurm/`, golden files and templates, one a kind of job.

`python -m tests.launch.goldens` writes them anew.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from psopt import job
from psopt.config import JobConfig
from psopt.launch.script import Array, Start, array_script, script
from psopt.launch.site import Site, sites

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "slurm"
CONFIG = ROOT / "configs" / "lenet5_wasp.yaml"
HOME = Path("/home/user/digits")
START = Start(HOME / ".venv/bin/python", HOME, HOME / "runs/lenet5-wasp", "pmi2")

_GPUS = ("batch.nodes=2", "batch.tasks_per_node=5", "batch.gpus_per_node=4", "cluster.workers=8")
CASES: dict[str, tuple[str, ...]] = {
    "slurm": (
        "batch.site=slurm",
        *_GPUS,
        "batch.cpus_per_task=6",
        "batch.memory=120 GiB",
        "batch.time=24:00:00",
        "batch.account=project",
        "batch.partition=gpu",
        "batch.modules=[mpich/4.1, cuda/12.1]",
    ),
    "slurm_heterogeneous": (
        "batch.site=slurm",
        "batch.heterogeneous=true",
        "batch.tasks_per_node=4",
        "batch.gpus_per_node=4",
        "cluster.workers=8",
        "batch.cpus_per_task=6",
        "batch.time=24:00:00",
        "batch.partition=gpu",
        "batch.coordinator_partition=cpu",
    ),
    "tianhe2": (
        "batch.site=tianhe2",
        "batch.tasks_per_node=12",
        "cluster.workers=95",
        "batch.cpus_per_task=2",
        "batch.time=2d",
        "batch.partition=work",
        "batch.exclude=['cn[120-127]', cn4031]",
        "batch.preamble=['export HDF5_USE_FILE_LOCKING=FALSE']",
    ),
    "tianhexy": (
        "batch.site=tianhexy",
        *_GPUS,
        "batch.cpus_per_task=4",
        "batch.time=12:00:00",
        "batch.partition=a100",
        "batch.requeue=false",
        "batch.extra=[--exclusive]",
    ),
    "slurm_array": (
        "batch.site=slurm",
        "batch.tasks_per_node=3",
        "batch.cpus_per_task=4",
        "batch.time=4h",
        "batch.partition=cpu",
    ),
}
"""Name of the file, and the changes to the shipped job."""
SWEEP = HOME / "sweeps/rates"
ARRAYS = {"slurm_array": Array(SWEEP / "batch/0001", 24, 8, simulated=False)}
"""Those that are arrays of a sweep's runs."""


def prepared(*overrides: str) -> tuple[JobConfig[Any], Site]:
    """The shipped job with changes, and its site."""
    config = job.load(CONFIG, overrides)
    return config, sites()[config.batch.site or "slurm"].with_commands(config.batch.commands)


def text(name: str) -> str:
    """The script of a case."""
    if name in ARRAYS:
        start = dataclasses.replace(START, run=SWEEP)
        return array_script(*prepared(*CASES[name]), start, ARRAYS[name])
    return script(*prepared(*CASES[name]), START)


if __name__ == "__main__":
    for case in CASES:
        (GOLDEN / f"{case}.sh").write_text(text(case), encoding="utf-8", newline="\n")
