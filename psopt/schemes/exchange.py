"""What rounds on shards send out and take in: ways to local solutions, losses along a direction, samples spent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from psopt.crew.base import LocalSolve, Probe, Reply, Shard, Tally
from psopt.schemes.base import Context, Diverged


def account(context: Context, replies: Sequence[Reply]) -> Tally:
    """The sum of the replies' tallies, in order; their samples are spent."""
    tallies = [tally for reply in replies for tally in reply.result.tallies]
    correct = [tally.correct for tally in tallies if tally.correct is not None]
    count = sum(tally.count for tally in tallies)
    context.tickets.spend(count)
    return Tally(
        math.fsum(tally.loss for tally in tallies),
        sum(correct) if len(correct) == len(tallies) else None,
        count,
        all(tally.finite for tally in tallies),
    )


def check_solutions(replies: Sequence[Reply]) -> None:
    """See whether the local solutions are fit to be used.

    Raises:
        Diverged: one is not finite, or there is none.
    """
    for reply in replies:
        task = reply.task
        if isinstance(task, LocalSolve) and not (tally := reply.result.tallies[0]).finite:
            problem = (
                "a local problem has no minimum, which a larger mu or loss.l2 would give it,"
                if tally.loss == -math.inf
                else "a local solution is not finite"
            )
            raise Diverged(f"shard {task.shard.index}: {problem} in round {task.turn + 1}")


def descend(context: Context, tasks: Sequence[LocalSolve]) -> Tensor:
    """The weighted sum of the ways of local solves, (n,), in task order.

    Raises:
        Diverged: a local solution is not finite.
    """
    total = torch.empty_like(context.server.vectors[0])
    replies = context.crew.reduce(tasks, (total,))
    account(context, replies)
    check_solutions(replies)
    return total


def probe(
    context: Context, parts: Sequence[tuple[Shard, float]], steps: Sequence[float]
) -> list[float]:
    """Mean loss, without the penalty, at the published parameters + each step * the published direction."""
    version, tries = context.server.version, tuple(steps)
    tasks = [Probe(version, shard, tries) for shard, _ in parts]
    replies = context.crew.gather(tasks)
    rows, columns = context.tickets.rows, range(max(1, len(tries)))
    losses = [math.fsum(r.result.tallies[k].loss for r in replies) / rows for k in columns]
    context.tickets.spend(round(rows * len(columns) / 3))
    return losses
