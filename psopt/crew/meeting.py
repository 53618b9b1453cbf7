"""How the coordinator sets its workers' clocks by its own, and what their rounds make together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from psopt.crew.base import Rounds, Tally, WorkerLost, deal
from psopt.crew.wire import Tag, Wire

_PINGS = 5

Wait = Callable[[int, Tag], tuple[int, int] | None]
"""Sleeps until a message of a rank has come: (source, header size); None: somebody has died."""


def meet(
    wire: Wire, workers: Sequence[int], wait: Wait
) -> tuple[list[dict[str, Any]], dict[int, float]]:
    """Every worker's introduction, in order, and the offsets of their clocks.

    Raises:
        WorkerLost: a worker has died before the job began.
    """
    introductions, offsets = [], {}
    for worker in workers:
        introductions.append(_message(wire, worker + 1, Tag.HELLO, wait))
        offsets[worker] = _offset(wire, worker + 1, wait)
    return introductions, offsets


def _message(wire: Wire, rank: int, tag: Tag, wait: Wait) -> Any:
    if (found := wait(rank, tag)) is None:
        raise WorkerLost("a worker is gone before the job began")
    return wire.header(found[0], tag, found[1])[0]


def _offset(wire: Wire, rank: int, wait: Wait) -> float:
    """Coordinator's clock minus that of ``rank``, from the fastest of a few exchanges (Cristian 1989)."""
    best, offset = float("inf"), 0.0
    for _ in range(_PINGS):
        sent = time.perf_counter()
        wire.send(rank, (Tag.PING, Tag.PING), None, ()).wait()
        theirs = _message(wire, rank, Tag.PONG, wait)
        received = time.perf_counter()
        if received - sent < best:
            best, offset = received - sent, (sent + received) / 2 - theirs
    return offset


def by_round(task: Rounds, tallies: Sequence[tuple[Tally, ...]]) -> list[tuple[Tally, ...]]:
    """Tallies of each round, in slot order, from those of each worker's own slots."""
    streams = [iter(own) for own in tallies]
    rounds = []
    for tickets in task.rounds:
        dealt = deal(len(tickets), len(streams))
        sums = [
            tally
            for stream, block in zip(streams, dealt, strict=True)
            for tally in islice(stream, len(block))
        ]
        if sums:  # none: the rounds ended before this one
            rounds.append(tuple(sums))
    return rounds
