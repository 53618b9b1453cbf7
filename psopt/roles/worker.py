"""THE task loop of a worker: receive a task, perform it, reply."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Protocol

from psopt.crew.base import Peers, Result, Task, Vectors
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


def serve(link: Link, replica: Replica, introduction: dict[str, Any]) -> None:
    """Serve tasks until the coordinator says that the job is over."""
    link.introduce(introduction)
    memory = Memory()
    while (order := link.receive(replica.inbox)) is not None:
        if order.vectors:
            replica.load(order.task.version, order.vectors, order.structure)
        start = time.perf_counter()
        result = replica.perform(order.task, link.peers, memory)
        link.reply(order.serial, replace(result, seconds=time.perf_counter() - start))
    link.leave()
