"""How many ranks a batch job has and where they go, and whether that fits what the job says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from psopt.config import JobConfig, Problem
from psopt.launch.site import sites


@dataclass(frozen=True, slots=True)
class Placement:
    """Ranks on nodes.

    Attributes:
        tasks: ranks that are placed together: all, or without the coordinator where it has a node of its own.
        nodes: how many they get; None: Slurm chooses.
        tasks_per_node: most of them on a node; None: Slurm chooses.
    """

    tasks: int
    nodes: int | None
    tasks_per_node: int | None


def place(config: JobConfig[Any]) -> Placement:
    """The placement of a job: `cluster.workers`, and the coordinator with them unless it is apart."""
    batch = config.batch
    tasks = config.cluster.workers + (0 if batch.heterogeneous else 1)
    nodes = batch.nodes
    if nodes is None and batch.tasks_per_node is not None:
        nodes = -(-tasks // batch.tasks_per_node)
    return Placement(tasks, nodes, batch.tasks_per_node)


def check_batch(config: JobConfig[Any]) -> Iterator[Problem]:
    """What keeps a valid job from being submitted."""
    batch = config.batch
    site = sites().get(batch.site or "")
    if site is None:
        known = ", ".join(sites())
        yield Problem(("batch", "site"), f"there is no site {batch.site!r}: use one of {known}")
    elif site.needs_partition and batch.partition is None:
        message = f"{site.name} wants a partition from every job: set 'partition', or --set batch.partition=..."
        yield Problem(("batch", "partition"), message)
    yield from _check_nodes(config)
    if batch.gpus_per_node is not None and place(config).nodes is None:
        message = "say on how many nodes the GPUs are: set 'nodes' or 'tasks_per_node'"
        yield Problem(("batch", "gpus_per_node"), message)
    if batch.heterogeneous and batch.tasks_per_node is None and batch.nodes is None:
        message = "say where the workers go: set 'nodes' or 'tasks_per_node'"
        yield Problem(("batch", "heterogeneous"), message)


def _check_nodes(config: JobConfig[Any]) -> Iterator[Problem]:
    batch, placed = config.batch, place(config)
    if batch.nodes is None:
        return
    who = f"{config.cluster.workers} workers" + (
        "" if batch.heterogeneous else " and a coordinator"
    )
    if batch.tasks_per_node is None:
        if batch.nodes > placed.tasks:
            message = f"{who} leave some of {batch.nodes} nodes empty; raise cluster.workers"
            yield Problem(("batch", "nodes"), message)
        return
    wanted = -(-placed.tasks // batch.tasks_per_node)
    if wanted != batch.nodes:
        full = batch.nodes * batch.tasks_per_node - (0 if batch.heterogeneous else 1)
        message = (
            f"{who} at {batch.tasks_per_node} tasks a node need {wanted}, not {batch.nodes}; or set "
            f"cluster.workers to {full} to fill them"
        )
        yield Problem(("batch", "nodes"), message)
