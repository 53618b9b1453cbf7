"""A sum over real workers whose replies wait for their turn, while others die."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from psopt.crew import mpi_crew
from psopt.crew.base import Gradient, Reply, Result, Tally, Task, Ticket, Vectors
from psopt.crew.mpi_crew import MpiCrew
from psopt.crew.pool import Pool
from psopt.crew.posted import Posted
from psopt.crew.roster import DIED, Roster

TASKS = [Gradient(0, Ticket(0, k)) for k in range(6)]


class Post:
    """Workers that answer in an order of our own; a reply to task k is k + 1 twice.

    Args:
        turns: who is next: a worker that answers, or a call before that.
    """

    def __init__(self, turns: list[int | Callable[[Post], None]]) -> None:
        self.roster, self.pool, self.vigil = Roster(3), Pool(), self
        self.published: dict[int, Any] = {}
        self.late, self.turns, self.serial = 0, turns, 0

    def send(self, worker: int, task: Task, serial: int | None = None) -> int:
        if serial is None:
            serial = self.serial = self.serial + 1
        self.roster.given(worker, serial, task, 0.0)
        return serial

    def receive(
        self, source: int | None, places: Mapping[int, Vectors] | None = None
    ) -> tuple[int, Reply] | None:
        if self.roster.losses:
            return None
        able = [worker for worker in self.roster.workers if self.roster.open[worker]]
        worker = source if source is not None else able[0]
        while self.turns and not isinstance(self.turns[0], int):
            turn = self.turns.pop(0)
            assert callable(turn)
            turn(self)  # while a reply is being received
        if self.turns and self.turns[0] in able and source is None:
            worker = self.turns.pop(0)  # type: ignore[assignment]
        if worker not in self.roster.open:
            return None
        serial, task = self.roster.answered(worker, 0.0)
        assert isinstance(task, Gradient)
        value = torch.full((2,), task.ticket.batch + 1.0)
        return serial, Reply(worker, task, Result((Tally(1.0, 1, 1),), (value,), 0))


def kill(worker: int) -> Callable[[Post], None]:
    return lambda post: post.roster.bury([worker], DIED) and None


@pytest.mark.parametrize("spare", [0, 1 << 20])
@pytest.mark.parametrize(
    "turns",
    [
        [1, kill(0), 2],  # with two early replies in memory, the worker whose turn it is dies
        [kill(0), 1, 2],
        [2, 2, 1, kill(0)],
        [0, 2, 1, kill(0), kill(2)],
        [1, 1, kill(1), 0],
    ],
)
def test_whoever_dies_the_sum_is_right(
    turns: list[Any], spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi_crew, "_SPARE_BYTES", spare)
    post = Post(list(turns))
    crew = MpiCrew.__new__(MpiCrew)
    crew._post = post  # type: ignore[assignment]
    Posted.__init__(crew, post, post)  # type: ignore[arg-type]
    crew._pool = post.pool
    out = torch.zeros(2)
    replies = crew.reduce(TASKS, (out,))
    assert torch.equal(out, torch.full((2,), 21.0))
    assert [reply.task for reply in replies] == TASKS
