"""Who is there, and who has which tasks."""

from __future__ import annotations

from psopt.crew.base import Evaluate
from psopt.crew.roster import Roster

TASK = Evaluate(0, 0, 1)


def test_a_loss_leaves_the_others_as_they_are() -> None:
    roster = Roster(3)
    for serial, worker in enumerate((0, 1, 1, 2)):
        roster.open[worker].append((serial, TASK))
    for worker in (0, 1, 1):
        roster.submit(worker)
    roster.held |= {0: 4, 1: 5}
    assert roster.doing(2) == 1
    assert list(roster.idle) == [2]
    assert roster.bury([1, 7])
    assert not roster.bury([1, 7])
    assert roster.workers == (0, 2)
    ((worker, tasks),) = roster.losses
    assert (worker, list(tasks)) == (1, [(1, TASK), (2, TASK)])
    assert (list(roster.open), list(roster.idle), roster.held) == ([0, 2], [2], {0: 4})
    assert not roster.all_idle
    roster.collect(1)  # what had come before its death
    roster.collect(0)
    assert list(roster.idle) == [2, 0]
    assert roster.all_idle


def test_idle_workers_are_in_the_order_in_which_they_became_free() -> None:
    roster = Roster(2)
    for worker in (0, 0, 1):
        roster.submit(worker)
    for worker, idle in ((0, []), (1, [1]), (0, [1, 0])):
        roster.collect(worker)
        assert list(roster.idle) == idle
