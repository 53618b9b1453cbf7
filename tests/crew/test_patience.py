"""When a worker is overdue."""

from __future__ import annotations

import random

import pytest

from psopt.crew.base import Evaluate, Gradient, Rounds, Ticket
from psopt.crew.faults import Faults
from psopt.crew.patience import Patience, Terms, Watches
from psopt.crew.sim import SimCrew
from psopt.crew.virtual import Network
from tests.replica.support import Setup

TASK, OTHER = Gradient(0, Ticket(0, 0)), Evaluate(0, 0, 1)
SETUP = Setup("plain", samples=1000, batch=10)


def learnt(watches: Watches, worker: int, *seconds: float) -> float:
    """The worker does tasks one after another from 0 on; when the last has ended."""
    now = 0.0
    for each in seconds:
        watches.begin(worker, TASK, now)
        now += each
        watches.end(worker, now)
    return now


def test_the_deadline_comes_from_the_workers_own_history() -> None:
    """Ten times its longest; 60 s at least; an hour for the first of a kind."""
    watches = Watches(Patience(10.0, 60.0, 3600.0))
    watches.begin(0, TASK, 5.0)
    assert watches.next() == 3605.0
    watches.end(0, 25.0)  # took 20 s
    watches.begin(0, TASK, 100.0)
    assert watches.next() == 300.0
    watches.end(0, 101.0)
    watches.begin(1, TASK, 101.0)  # another worker: nothing is known
    assert watches.next() == 3701.0
    watches.begin(0, OTHER, 102.0)  # another kind
    watches.end(1, 101.5)
    assert watches.next() == 3702.0
    watches.begin(1, TASK, 103.0)  # its longest is half a second: the least counts
    assert watches.next() == 163.0


def test_the_longest_is_forgotten_slowly() -> None:
    watches = Watches(Patience(10.0, 0.0, 1.0))
    now = learnt(watches, 0, 100.0, *[1.0] * 50)
    watches.begin(0, TASK, now)
    assert watches.next() - now == pytest.approx(10 * (1 + 99 * 0.98**50))


def test_who_is_overdue() -> None:
    watches = Watches(Patience(2.0, 1.0, 1.0))
    for worker, since in ((2, 0.0), (0, 0.5), (1, 3.0)):
        watches.begin(worker, TASK, since)
    assert watches.overdue(0.9) == []
    assert watches.overdue(2.0) == [2, 0]
    assert watches.overdue(2.0) == [2, 0]  # until something is done about it
    watches.forget(2)
    watches.extend([0], 2.0)
    assert watches.overdue(3.4) == []
    assert watches.overdue(3.5) == [0]
    assert "has not answered for 3 s (Gradient task; its first of the kind)" in watches.why(0, 3.5)


def test_without_patience_nobody_is() -> None:
    watches = Watches(None)
    watches.begin(0, TASK, 0.0)
    assert watches.overdue(1e300) == []
    watches.end(0, 1.0)


@pytest.mark.parametrize("seed", range(100))
def test_a_task_of_five_times_the_usual_is_waited_for(seed: int) -> None:
    """Lognormal times (sigma 0.3), and once in the run one that takes five times the mean."""
    draw = random.Random(seed)
    slow = draw.randrange(3, 40)
    calls = 0

    def seconds(worker: int, samples: int) -> float:
        nonlocal calls
        calls += worker == 1
        return 5.0 if worker == 1 and calls == slow else draw.lognormvariate(-0.045, 0.3)

    patience = Patience(10.0, 1e-3, 20.0)
    crew = SimCrew(SETUP.replica(), 3, seconds, Network(0.0, 1e30), terms=Terms(True, patience))
    crew.publish(0, SETUP.server().vectors)
    for number in range(120):
        for worker in crew.idle():
            crew.submit(worker, Gradient(0, Ticket(0, number % 100)))
        crew.collect()
    assert calls >= slow
    assert crew.workers == (0, 1, 2)


@pytest.mark.parametrize("seed", range(20))
def test_a_stop_of_three_deadlines_is_not(seed: int) -> None:
    """It is evicted, its push comes late and is refused, and no task is lost or answered twice."""
    draw = random.Random(seed)
    stop = draw.uniform(3.0, 6.0)
    crew = SimCrew(
        SETUP.replica(),
        3,
        lambda worker, samples: draw.uniform(0.8, 1.2),
        Network(0.0, 1e30),
        faults=Faults(stops={1: [(stop, 36.0)]}),
        terms=Terms(True, Patience(10.0, 1.0, 20.0)),
    )
    crew.publish(0, SETUP.server().vectors)
    open_tickets = [Ticket(0, number) for number in range(100)]
    answered = []
    while len(answered) < 100:
        for worker in crew.idle():
            if open_tickets:
                crew.submit(worker, Gradient(0, open_tickets.pop(0)))
        event = crew.collect()
        if hasattr(event, "result"):
            answered.append(event.task.ticket)
        else:
            assert event.worker == 1
            open_tickets += [task.ticket for task in event.tasks]
    assert sorted(answered) == [Ticket(0, number) for number in range(100)]
    assert crew.workers == (0, 2)
    assert "has not answered for" in crew.fates[1]
    assert crew.late == 1


def test_a_last_word_has_time() -> None:
    """However short the least time of a task is."""
    watches = Watches(Patience(10.0, 0.01, 0.01))
    watches.begin(0, TASK, 0.0, soon=True)
    assert watches.next() == 10.0


def test_rounds_go_on_without_one_that_stands_still() -> None:
    """From the end of its deadline, which is ten times what its slot takes; a short stop is waited for."""
    said: list[str] = []
    crew = SimCrew(
        SETUP.replica(),
        3,
        lambda worker, samples: 1.0,
        Network(0.0, 1e30),
        faults=Faults(stops={0: [(1.5, 5.0)], 1: [(20.0, 100.0)]}),
        terms=Terms(True, Patience(10.0, 1.0, 20.0), said.append),
    )
    crew.publish(0, SETUP.server().vectors)
    tickets = [tuple(Ticket(0, 3 * k + slot) for slot in range(3)) for k in range(20)]
    version, tallies = crew.together(Rounds(0, tuple(tickets)))
    assert (version, len(tallies)) == (20, 20)
    assert said == ["worker 1 has not answered for 10 s (Rounds task); 2 go on"]
    # 6 s for the round with the short stop, 10 s lost; then a worker has two slots in 5 rounds of 20.
    assert crew.now() == pytest.approx(15 + 5 + 10 + 5 * 2)
