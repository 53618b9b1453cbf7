"""Which function performs which task of the batch methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psopt.replica.batch_tasks import (
    BatchTask,
    Buffers,
    LocalSolve,
    Probe,
    ShardGradient,
    Slices,
)
from psopt.replica.memory import Memory
from psopt.replica.shards import perform_local_solve, perform_probe, perform_shard_gradient
from psopt.replica.slices import perform_buffers, perform_slices
from psopt.replica.tasks import Result

if TYPE_CHECKING:
    from psopt.replica.replica import Replica


def perform_batch_task(replica: Replica, task: BatchTask, memory: Memory) -> Result:
    """Do ``task`` for the worker with ``memory``."""
    match task:
        case Slices():
            return perform_slices(replica, task, memory)
        case Buffers():
            return perform_buffers(replica, task)
        case ShardGradient():
            return perform_shard_gradient(replica, task, memory)
        case LocalSolve():
            return perform_local_solve(replica, task, memory)
        case Probe():
            return perform_probe(replica, task)
