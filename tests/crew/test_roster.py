"""Who is there, and who has which tasks."""

from __future__ import annotations

import pytest

from psopt.crew.base import Evaluate, Lost, Reply, Result, Task, WorkerLost
from psopt.crew.patience import Terms
from psopt.crew.roster import DIED, Roster

TASK = Evaluate(0, 0, 1)


def answered(worker: int) -> Reply:
    return Reply(worker, TASK, Result())


def test_what_the_dead_had_is_dealt_to_the_others() -> None:
    """In blocks, each at its position; what was submitted comes back."""
    roster, given = Roster(3), list[tuple[int, Task]]()

    def give(worker: int, task: Task) -> int:
        given.append((worker, task))
        roster.open[worker].append((len(given), task))
        return len(given)

    own = Evaluate(7, 0, 1)
    give(1, own)
    roster.submit(1)
    tasks = [Evaluate(k, 0, 1) for k in range(6)]
    wanted = roster.deal_out(list(enumerate(tasks)), give)
    assert [worker for worker, _ in given[1:]] == [0, 0, 1, 1, 2, 2]
    roster.bury([1], DIED)
    roster.deal_again(wanted, give)
    assert given[7:] == [(0, tasks[2]), (2, tasks[3])]
    assert sorted(wanted.values()) == list(range(6))
    assert roster.collect() == Lost(1, (own,))
    roster.bury([0, 2], DIED)
    with pytest.raises(WorkerLost, match="all workers are gone"):
        roster.deal_again(wanted, give)


def test_a_loss_leaves_the_others_as_they_are() -> None:
    roster = Roster(3)
    for serial, worker in enumerate((0, 1, 1, 2)):
        roster.open[worker].append((serial, TASK))
    for worker in (0, 1, 1):
        roster.submit(worker)
    roster.held |= {0: 4, 1: 5}
    assert roster.doing(2) == 1
    assert list(roster.idle) == [2]
    assert roster.bury([1, 7], DIED)
    assert not roster.bury([1, 7], DIED)
    assert roster.workers == (0, 2)
    ((worker, tasks),) = roster.losses
    assert (worker, list(tasks)) == (1, [(1, TASK), (2, TASK)])
    assert (list(roster.open), list(roster.idle), roster.held) == ([0, 2], [2], {0: 4})
    assert not roster.all_idle
    roster.kept += [answered(1), answered(0)]  # the first had come before its worker's death
    assert [roster.collect().worker for _ in range(2)] == [1, 0]
    assert list(roster.idle) == [2, 0]
    assert roster.all_idle


def test_idle_workers_are_in_the_order_in_which_they_became_free() -> None:
    roster = Roster(2)
    for worker in (0, 0, 1):
        roster.submit(worker)
    for worker, idle in ((0, []), (1, [1]), (0, [1, 0])):
        roster.kept.append(answered(worker))
        roster.collect()
        assert list(roster.idle) == idle


@pytest.mark.parametrize("goes_on", [True, False])
def test_losses_are_told_at_once(goes_on: bool) -> None:
    said: list[str] = []
    roster = Roster(4, Terms(goes_on, None, said.append))
    assert roster.bury([1, 3], "has died")
    assert not roster.bury([3], "has not answered")
    assert roster.bury([0], "has failed")
    left = ("; 3 go on", "; 2 go on", "; 1 go on") if goes_on else ("", "", "")
    whats = ("1 has died", "3 has died", "0 has failed")
    assert said == [f"worker {what}{others}" for what, others in zip(whats, left, strict=True)]
