"""THE task loop of a worker: receive a task, perform it, reply."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from psopt.crew.base import Evaluate, Peers, Result, Task, Vectors
from psopt.replica.memory import Memory
from psopt.replica.replica import Replica


class Order(Protocol):
    """A task that has arrived."""

    @property
    def serial(self) -> int: ...
    @property
    def task(self) -> Task: ...
    @property
    def vectors(self) -> Vectors: ...
    @property
    def structure(self) -> Any: ...


class Link(Protocol):
    """The worker's connection with the coordinator."""

    peers: Peers

    def introduce(self, introduction: dict[str, Any]) -> None: ...
    def receive(self, places: Vectors) -> Order | None: ...
    def reply(self, serial: int, result: Result) -> None: ...
    def leave(self) -> None: ...


def serve(
    link: Link,
    replica: Replica,
    introduction: dict[str, Any],
    emulated: Callable[[int], float] | None = None,
    poisons: Callable[[Task], bool] = lambda task: False,
) -> None:
    """Serve tasks until the coordinator says that the job is over.

    Args:
        link: to the coordinator.
        replica: performs the tasks.
        introduction: what this worker says of itself.
        emulated: seconds that a task over so many samples has to take at least; evaluations are
            measurement, and take what they take.
        poisons: whether the gradients of a task come out as not a number, for a trial.
    """
    link.introduce(introduction)
    memory = Memory()
    while (order := link.receive(replica.inbox)) is not None:
        if order.vectors:
            replica.load(order.task.version, order.vectors, order.structure)
        start = time.perf_counter()
        replica.poisoned = poisons(order.task)
        result = replica.perform(order.task, link.peers, memory)
        if emulated is not None and not isinstance(order.task, Evaluate):
            _rest(start, emulated, result, replica)
        link.reply(order.serial, replace(result, seconds=time.perf_counter() - start))
    link.leave()


def _rest(start: float, emulated: Callable[[int], float], result: Result, replica: Replica) -> None:
    """Sleep until the task has taken as long as it should; it counts as computing."""
    if samples := sum(tally.count for tally in result.tallies):
        now = time.perf_counter()
        if (seconds := start + emulated(samples) - now) > 0:
            time.sleep(seconds)
            replica.clock.stretch("compute", now)
