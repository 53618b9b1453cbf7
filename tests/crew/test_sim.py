"""The virtual cluster: times by hand, deaths, and the course of an asynchronous run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from psopt.crew.base import (
    Evaluate,
    Gradient,
    Lost,
    Reply,
    Rounds,
    Ticket,
    WorkerLost,
)
from psopt.crew.faults import Faults
from psopt.crew.sim import SimCrew
from psopt.crew.virtual import ComputeTimes, Network, distribution
from tests.replica.support import Setup, bits

SETUP = Setup("plain", samples=1000, batch=10)
SIZE = 4 * (7 * 5 + 5 + 5 * 3 + 3)  # bytes of parameters or gradient: there are no buffers


def cluster(
    workers: int,
    *,
    latency: float = 0.0,
    bandwidth: float = 1e30,
    slow: Mapping[int, float] | None = None,
    name: str = "constant",
    seed: int = 0,
    **options: Any,
) -> SimCrew:
    """Workers that take 1 s for a batch."""
    compute = ComputeTimes(distribution(name, 1.0, 0.5), SETUP.batch, slow or {}, seed)
    network = Network(latency, bandwidth)
    crew = SimCrew(SETUP.replica(), workers, compute, network, **options)
    crew.publish(0, SETUP.server().vectors)
    return crew


def gradient(batch: int = 0, version: int = 0) -> Gradient:
    return Gradient(version, Ticket(0, batch))


def reply(crew: SimCrew) -> Reply:
    event = crew.collect()
    assert isinstance(event, Reply)
    return event


def test_who_has_nothing_to_do_waits_until_the_end() -> None:
    """Two of three workers: one idle after a second, one never busy."""
    spans = []
    crew = cluster(3, slow={1: 3.0}, observer=lambda rank, span: spans.append((rank, *span)))
    crew.submit(0, gradient(0))
    crew.submit(1, gradient(1))
    reply(crew), reply(crew)
    crew.close()
    waits = {rank: end - start for rank, kind, start, end in spans if rank and kind == "wait"}
    assert waits == pytest.approx({1: 2.0, 2: 0.0, 3: 3.0})


def test_one_task() -> None:
    """Parameters out: 2 s on the link and 3 s on the way; 1 s of work; the same way back; the update."""
    crew = cluster(1, latency=3.0, bandwidth=SIZE / 2, server_cost=0.25)
    crew.submit(0, gradient())
    assert crew.now() == 0.0
    reply(crew)
    assert crew.now() == pytest.approx(5 + 1 + 5 + 0.25)
    crew.submit(0, gradient())  # it holds the version now
    reply(crew)
    assert crew.now() == pytest.approx(11.25 + 3 + 1 + 5 + 0.25)


def test_the_link_is_shared() -> None:
    """Two sets of parameters leave one after the other, and two gradients arrive so."""
    crew = cluster(2, latency=3.0, bandwidth=SIZE / 2)
    for worker in range(2):
        crew.submit(worker, gradient())
    arrivals = []
    for _ in range(2):
        reply(crew)
        arrivals.append(crew.now())
    # out at 2 and 4, there at 5 and 7, done at 6 and 8; at the link at 9 and 11, in at 11 and 13
    assert arrivals == pytest.approx([11, 13])


def test_two_gradients_at_once_queue_for_the_server() -> None:
    crew = cluster(3, server_cost=0.5, slow={2: 1.2})
    for worker in range(3):
        crew.submit(worker, gradient())
    seen = []
    for _ in range(3):
        worker = reply(crew).worker
        seen.append((worker, crew.now()))
    assert [worker for worker, _ in seen] == [0, 1, 2]
    assert [at for _, at in seen] == pytest.approx([1.5, 2.0, 2.5])


def test_stragglers_come_last() -> None:
    crew = cluster(3, slow={0: 5.0})
    crew.submit(0, gradient())
    order, submitted = [], 1
    crew.submit(1, gradient())
    crew.submit(2, gradient())
    for _ in range(9):
        worker = reply(crew).worker
        order.append((worker, crew.now()))
        submitted += 1
        crew.submit(worker, gradient(submitted))
    assert order == [
        *((worker, second) for second in range(1, 5) for worker in (1, 2)),
        (0, 5.0),
    ]


def test_tasks_of_a_worker_run_one_after_another() -> None:
    crew = cluster(1)
    for batch in range(3):
        crew.submit(0, gradient(batch))
    seconds = []
    for _ in range(3):
        reply(crew)
        seconds.append(crew.now())
    assert seconds == [1.0, 2.0, 3.0]


def test_a_round_lasts_as_long_as_its_slowest_worker() -> None:
    crew = cluster(3, slow={1: 4.0}, latency=2.0)
    out = tuple(torch.zeros_like(v) for v in SETUP.server().vectors)
    crew.reduce([gradient(batch) for batch in range(3)], out)
    assert crew.now() == pytest.approx(2 + 4 + 2)


def test_rounds_together_take_the_slowest_and_an_allreduce() -> None:
    """3 workers, 4 slots: dealt 1, 1, 2; the parameters go out once, to each worker."""
    crew = cluster(3, slow={1: 1.5}, latency=0.5, bandwidth=SIZE)
    version, _ = crew.together(Rounds(0, (tuple(Ticket(0, b) for b in range(4)),), install=True))
    allreduce = 2 * (0.5 + 2 / 3)
    first = 3.5 + 2 + allreduce  # after the third copy; worker 2 has two slots
    assert crew.now() == pytest.approx(first)
    crew.together(Rounds(version, ((Ticket(0, 4), Ticket(0, 5), Ticket(0, 6)),) * 2))
    assert crew.now() == pytest.approx(first + 2 * (1.5 + allreduce))
    crew.fetch(version + 2)  # parameters and momentum
    assert crew.now() == pytest.approx(first + 2 * (1.5 + allreduce) + 2.5)


def test_a_small_batch_takes_its_share() -> None:
    setup = Setup("plain", samples=13, batch=10)
    compute = ComputeTimes(distribution("constant", 1.0, 0.0), 10, {}, 0)
    crew = SimCrew(setup.replica(), 1, compute, Network(0.0, 1e30))
    crew.publish(0, setup.server().vectors)
    crew.submit(0, gradient(1))
    reply(crew)
    assert crew.now() == pytest.approx(0.3)


def test_evaluation_takes_no_time() -> None:
    crew = cluster(2, latency=1.0, server_cost=1.0)
    crew.submit(0, gradient())
    crew.gather([Evaluate(0, 0, 2), Evaluate(0, 2, 4)])
    assert crew.now() == 0.0
    reply(crew)
    assert crew.now() == pytest.approx(1 + 1 + 1 + 1)


def test_the_observer_sees_where_time_goes() -> None:
    spans: list[tuple[int, str, float, float]] = []
    crew = cluster(
        1,
        latency=3.0,
        bandwidth=SIZE / 2,
        server_cost=0.25,
        observer=lambda rank, span: spans.append((rank, *span)),
    )
    crew.submit(0, gradient())
    reply(crew)
    assert spans == [
        (1, "wait", 0.0, 5.0),
        (1, "compute", 5.0, 6.0),
        (1, "send", 6.0, 11.0),
        (0, "wait", 0.0, 11.0),
        (0, "update", 11.0, 11.25),
    ]


def test_a_death_loses_the_open_tasks() -> None:
    crew = cluster(2, faults=Faults(deaths={1: 1.5}))
    tasks = [gradient(batch) for batch in range(3)]
    for task in tasks:
        crew.submit(1, task)
    crew.submit(0, gradient(3))
    crew.submit(0, gradient(4))
    events = [crew.collect() for _ in range(4)]
    assert [event.worker for event in events] == [1, 0, 1, 0]
    assert events[2] == Lost(1, (tasks[1], tasks[2]))
    assert crew.workers == (0,)
    assert tuple(crew.idle()) == (0,)
    with pytest.raises(RuntimeError, match="no task is open"):
        crew.collect()


def test_a_worker_that_died_free_is_found_by_its_next_task() -> None:
    crew = cluster(2, faults=Faults(deaths={1: 0.5}))
    crew.submit(0, gradient())
    reply(crew)
    assert crew.workers == (0, 1)
    task = gradient(1)
    crew.submit(1, task)
    assert crew.collect() == Lost(1, (task,))
    assert crew.now() == 1.0


def test_all_workers_die() -> None:
    crew = cluster(3, faults=Faults(deaths=dict.fromkeys(range(3), 0.5)))
    for worker in range(3):
        crew.submit(worker, gradient(worker))
    assert [crew.collect() for _ in range(3)] == [Lost(w, (gradient(w),)) for w in range(3)]
    assert crew.workers == ()
    assert tuple(crew.idle()) == ()


@pytest.mark.parametrize("deaths", [{2: 0.5}, {0: 0.0, 2: 1.5}, {0: 0.7, 1: 1.2}])
def test_a_death_in_a_synchronous_round_does_not_show(deaths: dict[int, float]) -> None:
    """Others do the tasks of the dead; the sum and the replies are those of the undisturbed round."""
    found = []
    tasks = [gradient(batch) for batch in range(7)]
    for dying in ({}, deaths):
        crew = cluster(3, faults=Faults(deaths=dying))
        out = tuple(torch.zeros_like(v) for v in SETUP.server().vectors)
        replies = crew.reduce(tasks, out)
        assert [reply.task for reply in replies] == tasks
        assert all(reply.worker in crew.workers or reply.worker in dying for reply in replies)
        found.append((bits(out), [reply.result.tallies for reply in replies]))
        assert crew.workers == tuple(sorted({0, 1, 2} - dying.keys()))
        assert sorted(crew.idle()) == list(crew.workers)
        later = [reply.result.tallies for reply in crew.gather(tasks)]
        assert later == found[-1][1]
    assert found[0] == found[1]


def test_each_reply_comes_with_its_position() -> None:
    crew = cluster(3, faults=Faults(deaths={1: 0.5}))
    tasks = [gradient(batch) for batch in range(6)]
    seen = [(position, reply.task) for position, reply in crew.each(tasks)]
    assert sorted(position for position, _ in seen) == list(range(6))
    assert all(task is tasks[position] for position, task in seen)


def test_nobody_is_left_for_a_round() -> None:
    crew = cluster(2, faults=Faults(deaths={0: 0.5, 1: 1.5}))
    out = tuple(torch.zeros_like(v) for v in SETUP.server().vectors)
    with pytest.raises(WorkerLost, match="all workers are gone; resume from the last checkpoint"):
        crew.reduce([gradient(batch) for batch in range(3)], out)
    planned = ((Ticket(0, 0), Ticket(0, 1)),)
    crew = cluster(2, faults=Faults(deaths={0: 0.5, 1: 0.5}))
    with pytest.raises(WorkerLost, match="all workers are gone"):
        crew.together(Rounds(0, planned, install=True))


def test_a_death_in_rounds_together_does_not_show() -> None:
    """But in the time: the round is done again by those that are left."""
    planned = tuple((Ticket(0, b), Ticket(0, b + 1), Ticket(0, b + 2)) for b in range(0, 9, 3))
    found = []
    for dying in ({}, {2: 2.5}):
        crew = cluster(3, faults=Faults(deaths=dying))
        version, first = crew.together(Rounds(0, planned[:2], install=True))
        version, second = crew.together(Rounds(version, planned[2:]))
        result = crew.fetch(version)
        found.append((version, first, second, bits(result.vectors)))
        assert crew.workers == tuple({0, 1, 2} - dying.keys())
    assert found[0] == found[1]


def test_a_death_outside_of_a_round_is_kept_for_collect() -> None:
    """Two workers take part in the round; the first has died over tasks of its own."""
    crew = cluster(3, faults=Faults(deaths={0: 0.5}))
    tasks = [gradient(8), gradient(9)]
    for task in tasks:
        crew.submit(0, task)
    out = tuple(torch.zeros_like(v) for v in SETUP.server().vectors)
    crew.reduce([gradient(0), gradient(1)], out)
    assert crew.workers == (1, 2)
    assert tuple(crew.idle()) == (1, 2)
    assert crew.collect() == Lost(0, tuple(tasks))
    with pytest.raises(RuntimeError, match="no task is open"):
        crew.collect()


def test_what_a_worker_had_answered_counts() -> None:
    """A reply that came during a round is kept, though its worker dies before it is collected."""
    crew = cluster(2, faults=Faults(deaths={0: 1.5}))
    tasks = [gradient(8), gradient(9)]
    for task in tasks:
        crew.submit(0, task)
    crew.gather([gradient(k) for k in range(6)])
    assert crew.workers == (1,)
    first, second = crew.collect(), crew.collect()
    assert not isinstance(first, Lost)
    assert (first.worker, first.task) == (0, tasks[0])
    assert second == Lost(0, (tasks[1],))
