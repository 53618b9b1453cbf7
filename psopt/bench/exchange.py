"""What an exchange costs: push and pull of large parameters, and the coordinator while it waits.

A program for two ranks (``mpirun -n 2 python -m psopt.bench.exchange ELEMENTS STEPS``). The worker
answers with a gradient that it has at hand, the server takes no step; so what is timed is the
crew's. Rank 0 prints the median seconds of a push and pull, and its CPU share during a long wait.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from statistics import median

import torch

from psopt.crew.base import Gradient, Peers, Result, Tally, Task, Ticket, Vectors
from psopt.crew.mpi import World
from psopt.crew.mpi_crew import MpiCrew
from psopt.crew.mpi_link import MpiLink
from psopt.crew.process import keep_memory
from psopt.crew.wire import Wire
from psopt.processes import fine_timers
from psopt.replica.spans import SpanLog

WAIT = 3.0
_LONG = 1_000_000  # batch number of the ticket that takes WAIT seconds


class Echo:
    """Answers every task with the same gradient.

    Args:
        elements: length of parameters and gradient, float32.
    """

    def __init__(self, elements: int) -> None:
        self.inbox: Vectors = (torch.zeros(elements),)
        self._gradient: Vectors = (torch.ones(elements),)

    def perform(self, task: Task, peers: Peers) -> Result:
        """The gradient; late when the ticket says so."""
        if isinstance(task, Gradient) and task.ticket.batch == _LONG:
            time.sleep(WAIT)
        return Result((Tally(0.0, None, 1),), self._gradient, task.version)


def answer(world: World, elements: int) -> None:
    """The worker's side."""
    link = MpiLink(Wire(world.ranks), world.rank, world.size, SpanLog())
    link.introduce({})
    echo = Echo(elements)
    while (order := link.receive(echo.inbox)) is not None:
        link.reply(order.serial, echo.perform(order.task, link.peers))
    link.leave()


def measure(world: World, elements: int, steps: int) -> dict[str, float]:
    """The server's side: median seconds of a push and pull, CPU share of a wait."""
    crew = MpiCrew(Wire(world.ranks), world.size - 1, lambda rank, span: None)
    crew.open()
    parameters: Vectors = (torch.zeros(elements),)
    seconds = list(_steps(crew, parameters, steps))
    crew.publish(steps, parameters)
    crew.submit(0, Gradient(steps, Ticket(0, _LONG)))
    cpu, wall = time.process_time(), time.perf_counter()
    crew.collect()
    share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    crew.close()
    return {"push_pull": median(seconds[2:]), "idle": share}


def _steps(crew: MpiCrew, parameters: Vectors, steps: int) -> Iterator[float]:
    for version in range(steps):
        start = time.perf_counter()
        crew.publish(version, parameters)
        crew.submit(0, Gradient(version, Ticket(0, version)))
        crew.collect()
        crew.retire(version)
        yield time.perf_counter() - start


def main(elements: int, steps: int) -> None:
    """One of the two ranks."""
    fine_timers()
    keep_memory()
    world = World()
    if world.rank == 0:
        print(json.dumps(measure(world, elements, steps)), flush=True)
    else:
        answer(world, elements)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
