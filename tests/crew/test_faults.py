"""Faults from a seed."""

from __future__ import annotations

import pytest
import torch

from psopt.crew.base import Evaluate, Gradient, Lost, Reply, Shard, ShardGradient, Ticket
from psopt.crew.faults import Fate, Faults, damaged
from psopt.crew.wire import Wire
from tests.crew.test_sim import SIZE, cluster, gradient, reply
from tests.replica.support import bits


def test_standing_still() -> None:
    """In the middle of a task it takes longer; a task that would begin meanwhile begins later."""
    faults = Faults(stops={1: [(10.0, 5.0), (2.0, 1.0)]})
    assert faults.through(0, 1.0, 20.0) == (1.0, 21.0)
    assert faults.through(1, 0.0, 1.5) == (0.0, 1.5)
    assert faults.through(1, 1.0, 2.0) == (1.0, 4.0)
    assert faults.through(1, 2.5, 1.0) == (3.0, 4.0)
    assert faults.through(1, 1.0, 8.5) == (1.0, 15.5)  # the first stop leads into the second


def test_the_same_seed_gives_the_same_faults() -> None:
    def fates(seed: int, order: tuple[int, ...]) -> dict[int, list[Fate]]:
        faults = Faults(delayed=0.5, delay=1.0, doubled=0.5, damaged={1: 0.5}, seed=seed)
        found: dict[int, list[Fate]] = {0: [], 1: []}
        for worker in order:
            found[worker].append(faults.message(worker))
        return found

    assert fates(3, (0, 1, 0, 1, 1)) == fates(3, (1, 1, 1, 0, 0))
    assert fates(3, (0, 1)) != fates(4, (0, 1))


def test_how_often() -> None:
    faults = Faults(delayed=0.25, delay=2.0, doubled=0.1, damaged={0: 0.05}, seed=1)
    found = [faults.message(0) for _ in range(10_000)]
    assert sum(fate.delay > 0 for fate in found) / 1e4 == pytest.approx(0.25, abs=0.02)
    assert sum(fate.delay for fate in found) / 1e4 == pytest.approx(0.5, abs=0.05)
    assert sum(fate.again is not None for fate in found) / 1e4 == pytest.approx(0.1, abs=0.02)
    assert sum(fate.damaged for fate in found) / 1e4 == pytest.approx(0.05, abs=0.01)
    assert not any(faults.message(1).damaged for _ in range(100))


def test_poison_is_for_gradients() -> None:
    """What has one comes back as NaN, though its loss is right; a worker that is sound, or a test, is left alone."""
    faults = Faults(poisoned={0: 1.0})
    assert not faults.poisons(1, gradient())
    assert not faults.poisons(0, Evaluate(0, 0, 1))
    crew = cluster(2, faults=faults)
    for worker in (0, 1):
        crew.submit(worker, gradient())
    bad, good = sorted((reply(crew) for _ in range(2)), key=lambda found: found.worker)
    assert torch.isnan(bad.result.vectors[0]).all()
    assert not bad.result.tallies[0].finite
    assert torch.isfinite(good.result.vectors[0]).all()
    assert good.result.tallies[0].finite
    assert bad.result.tallies[0].loss == good.result.tallies[0].loss


def shards() -> list[ShardGradient]:
    return [ShardGradient(0, Shard(k, 6, "iid", 1), 0.5) for k in range(6)]


@pytest.mark.parametrize("poisoned", [{0: 1.0}, {2: 1.0}, {1: 0.9}])
def test_a_second_worker_is_asked(poisoned: dict[int, float]) -> None:
    """Also where replies come twice; the second answer counts, and who was wrong is said once."""
    sound = cluster(3)
    total, again = (torch.zeros(SIZE // 4) for _ in range(2))
    expected = sound.reduce(shards(), (total,))
    assert sound.disproved() == []
    crew = cluster(3, faults=Faults(poisoned=poisoned, doubled=0.5, delay=0.5, seed=1))
    found = crew.reduce(shards(), (again,))
    assert torch.equal(total, again)
    assert [r.result.tallies for r in found] == [r.result.tallies for r in expected]
    (worker,) = set(crew.disproved())
    assert worker in poisoned
    assert crew.disproved() == []
    assert len(crew.idle()) == 3


@pytest.mark.parametrize("seed", range(25))
def test_an_answer_that_comes_together_with_an_earlier_one(seed: int) -> None:
    """Late replies leave together; the task that was given again comes after those before it."""
    totals = [torch.zeros(SIZE // 4) for _ in range(2)]
    cluster(2).reduce(shards(), (totals[0],))
    faults = Faults(poisoned={0: 0.5}, delayed=0.4, delay=20.0, doubled=0.3, seed=seed)
    crew = cluster(2, faults=faults)
    crew.reduce(shards(), (totals[1],))
    assert torch.equal(*totals)
    assert crew.workers == (0, 1)


def test_a_second_worker_that_dies_is_no_answer() -> None:
    total = torch.zeros(SIZE // 4)
    sound = cluster(3).reduce(shards(), (total,))
    # Worker 1 has worker 0's tasks once more when it dies.
    crew = cluster(3, faults=Faults(poisoned={0: 1.0}, deaths={1: 2.5}))
    again = torch.zeros(SIZE // 4)
    found = crew.reduce(shards(), (again,))
    assert crew.workers == (0, 2)
    assert torch.equal(total, again)
    assert [r.result.tallies for r in found] == [r.result.tallies for r in sound]
    assert set(crew.disproved()) == {0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_checksum_sees_a_flipped_bit(dtype: torch.dtype) -> None:
    vectors = (torch.ones(5, dtype=dtype), torch.arange(3))
    broken = damaged(vectors)
    assert torch.equal(vectors[0], torch.ones(5, dtype=dtype))
    assert bits(broken) != bits(vectors)
    wire = Wire(None, digest=True)  # type: ignore[arg-type]
    specs = [wire._spec(vector) for vector in vectors]
    assert wire.intact(specs, vectors)
    assert not wire.intact(specs, broken)


def test_a_reply_that_comes_twice_counts_once() -> None:
    crew = cluster(1, faults=Faults(doubled=1.0, delay=0.1))
    for batch in range(3):
        crew.submit(0, gradient(batch))
        assert reply(crew).task == gradient(batch)
    assert crew.late == 2  # the third has not come again yet


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        (Faults(damaged={1: 1.0}), "is behind a connection on which a message arrived damaged"),
        (Faults(deaths_in_message={1: 1}), "has died"),
    ],
)
def test_a_worker_behind_a_bad_connection_is_lost(faults: Faults, why: str) -> None:
    crew = cluster(2, faults=faults)
    crew.submit(0, gradient(0))
    crew.submit(1, gradient(1))
    events = [crew.collect(), crew.collect()]
    assert {type(event) for event in events} == {Reply, Lost}
    assert Lost(1, (gradient(1),)) in events
    assert (crew.workers, dict(crew.fates)) == ((0,), {1: why})


def test_replies_of_one_worker_do_not_overtake_each_other() -> None:
    crew = cluster(3, faults=Faults(delayed=0.5, delay=5.0, seed=2))
    for batch in range(10):
        for worker in range(3):
            crew.submit(worker, Gradient(0, Ticket(0, 3 * batch + worker)))
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    order = []
    for _ in range(30):
        found = reply(crew)
        assert isinstance(found.task, Gradient)
        seen[found.worker].append(found.task.ticket.batch)
        order.append(found.task.ticket.batch)
    assert all(batches == sorted(batches) for batches in seen.values())
    assert order != sorted(order)
