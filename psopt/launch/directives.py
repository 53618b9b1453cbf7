"""The `#SBATCH` lines of a job script: what the job asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from psopt.config import JobConfig
from psopt.launch.placement import Placement
from psopt.launch.site import Site

_PLAIN = re.compile(r"[^\s\"'\\#]+")


def directives(config: JobConfig[Any], site: Site, log: Path, placed: Placement) -> list[str]:
    """The `#SBATCH` lines.

    Args:
        config: the job.
        site: the cluster.
        log: output of the job; its last part may hold Slurm's `%j` and `%A`.
        placed: its ranks.
    """
    batch = config.batch
    output = str(log.parent).replace("%", "%%") + f"/{log.name}"
    lines = [
        directive("--job-name", config.name),
        directive("--output", output),
        directive("--open-mode", "append"),
        directive("--signal", f"B:{batch.signal}@{batch.signal_seconds}"),
        directive("--requeue" if batch.requeue else "--no-requeue"),
    ]
    if batch.heterogeneous:
        partition = batch.coordinator_partition or batch.partition
        lines += [*_component(config, site, Placement(1, 1, None), partition, 0), "#SBATCH hetjob"]
    return [*lines, *_component(config, site, placed, batch.partition, batch.gpus_per_node or 0)]


def _component(
    config: JobConfig[Any], site: Site, placed: Placement, partition: str | None, gpus: int
) -> Iterator[str]:
    """The lines of ranks that are placed together; the other ranks have theirs."""
    batch = config.batch
    options = {
        "--partition": partition,
        "--account": batch.account,
        "--qos": batch.qos,
        "--nodes": placed.nodes,
        "--ntasks": placed.tasks,
        "--ntasks-per-node": placed.tasks_per_node,
        "--cpus-per-task": batch.cpus_per_task,
        "--mem": None if batch.memory is None else f"{-(-batch.memory // 2**20)}M",
        "--time": None if batch.time is None else clock(batch.time),
        "--exclude": ",".join(batch.exclude) or None,
    }
    for name, value in options.items():
        if value is not None:
            yield directive(name, value)
    if gpus:
        yield f"#SBATCH {site.gpus.format(per_node=gpus, total=gpus * (placed.nodes or 1))}"
    for option in batch.extra:
        name, _, text = option.partition("=")
        yield directive(name, text or None)


def directive(option: str, value: object = None) -> str:
    """One `#SBATCH` line. Slurm reads quotes and backslashes in it much as a shell does."""
    if value is None:
        return f"#SBATCH {option}"
    text = str(value)
    if not _PLAIN.fullmatch(text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"#SBATCH {option}={text}"


def clock(seconds: float) -> str:
    """A duration as D-HH:MM:SS, rounded up to whole seconds."""
    whole = -int(-seconds // 1)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day}-{hour:02}:{minute:02}:{second:02}"
