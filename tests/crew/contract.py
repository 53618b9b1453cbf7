"""The contract of a crew, as functions of one: the same for real ranks and for a virtual cluster.

Each check takes a ``Case`` and returns what must be equal on every crew with as many workers (and,
where it says so, on every crew).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from psopt.crew import mpi_crew
from psopt.crew.base import (
    Buffers,
    Crew,
    Evaluate,
    Gradient,
    HandOver,
    Reply,
    Result,
    Rounds,
    Slices,
    Tally,
    Task,
    Ticket,
)
from psopt.optim.finite import is_finite
from psopt.replica.memory import Memory
from psopt.replica.tasks import Alone
from psopt.roles.server import ParameterServer
from tests.replica.support import ADAM, ONE_CYCLE, Setup, bits


@dataclass
class Case:
    """A crew just opened, and what the workers are made of."""

    crew: Crew
    setup: Setup

    def reference(self, server: ParameterServer, ticket: Ticket, weight: float = 1.0) -> Result:
        """What any worker must answer at the server's parameters."""
        replica = self.setup.replica()
        replica.load(0, server.vectors)
        return replica.perform(Gradient(0, ticket, weight), Alone(), Memory())


@dataclass(frozen=True)
class Check:
    run: Callable[[Case], Any]
    setup: Setup
    everywhere: bool  # the same on every crew, whatever the number of workers


CHECKS: dict[str, Check] = {}


def check(setup: Setup, *, name: str = "", everywhere: bool = False) -> Callable[..., Any]:
    def add(run: Callable[[Case], Any]) -> Callable[[Case], Any]:
        CHECKS[run.__name__ + name] = Check(run, setup, everywhere)
        return run

    return add


def digest(tensors: Iterable[Tensor]) -> str:
    return hashlib.sha256(repr(bits(tensors)).encode()).hexdigest()


def tickets(count: int, epoch: int = 0) -> list[Ticket]:
    return [Ticket(epoch, batch) for batch in range(count)]


def collect(crew: Crew) -> Reply:
    event = crew.collect()
    assert isinstance(event, Reply)
    return event


def advance(server: ParameterServer, vectors: Sequence[Tensor]) -> None:
    server.apply(tuple(vector.clone() for vector in vectors), epoch=0)


SMALL = Setup()


@check(SMALL)
def lends_what_is_published(case: Case) -> str:
    """The memory is the caller's again after ``retire``; a worker gets what was lent at the time."""
    crew, server = case.crew, case.setup.server()
    for version, ticket in enumerate(tickets(4)):
        crew.publish(version, server.vectors)
        expected = case.reference(server, ticket)
        for worker in crew.workers:
            crew.submit(worker, Gradient(version, ticket))
        crew.retire(version)
        advance(server, expected.vectors)
        for _ in crew.workers:
            reply = collect(crew)
            assert bits(reply.result.vectors) == bits(expected.vectors)
            assert reply.result.tallies == expected.tallies
            assert reply.result.version == version
    return digest(server.vectors)


@check(SMALL)
def a_task_names_its_version(case: Case) -> None:
    """Two versions are lent at once, and each worker is given them in turn."""
    crew, servers = case.crew, [case.setup.server(), case.setup.server()]
    advance(servers[1], case.reference(servers[0], Ticket(0, 3)).vectors)
    for version, server in enumerate(servers):
        crew.publish(version, server.vectors)
    for turn in range(4):
        for worker in crew.workers:
            crew.submit(worker, Gradient((worker + turn) % 2, Ticket(0, turn)))
    for _ in range(4 * len(crew.workers)):
        reply = collect(crew)
        assert isinstance(reply.task, Gradient)
        expected = case.reference(servers[reply.task.version], reply.task.ticket)
        assert bits(reply.result.vectors) == bits(expected.vectors)
    for version in range(2):
        crew.retire(version)


@check(SMALL)
def replies_of_a_worker_come_in_the_order_of_its_tasks(case: Case) -> None:
    crew = case.crew
    crew.publish(0, case.setup.server().vectors)
    given: dict[int, list[Any]] = {worker: [] for worker in crew.workers}
    for ticket in tickets(5):
        for worker in crew.workers:
            task = Gradient(0, ticket)
            crew.submit(worker, task)
            given[worker].append(task)
    for _ in range(5 * len(crew.workers)):
        reply = collect(crew)
        assert reply.task is given[reply.worker].pop(0)
    assert not any(given.values())


@check(SMALL)
def idle_lists_the_free_workers_longest_free_first(case: Case) -> None:
    crew = case.crew
    crew.publish(0, case.setup.server().vectors)
    assert tuple(crew.idle()) == crew.workers
    first, *others = crew.workers
    for _ in range(2):
        crew.submit(first, Gradient(0, Ticket(0, 0)))
    assert tuple(crew.idle()) == tuple(others)
    collect(crew)
    assert tuple(crew.idle()) == tuple(others)
    collect(crew)
    assert tuple(crew.idle()) == (*others, first)
    for worker in crew.workers:
        crew.submit(worker, Gradient(0, Ticket(0, 1)))
    assert tuple(crew.idle()) == ()
    order = [collect(crew).worker for _ in crew.workers]
    assert list(crew.idle()) == order
    with pytest.raises(RuntimeError, match="no task is open"):
        crew.collect()


def chunks(setup: Setup) -> int:
    return -(-setup.tests // setup.chunk)


@check(SMALL, everywhere=True)
def an_evaluation_leaves_an_asynchronous_run_as_it_is(case: Case) -> list[str]:
    """Replies that arrive meanwhile are kept, and their workers are not free before."""
    crew, server = case.crew, case.setup.server()
    crew.publish(0, server.vectors)
    for worker in crew.workers:
        crew.submit(worker, Gradient(0, Ticket(0, worker)))
    one = collect(crew)
    free, number = (one.worker,), chunks(case.setup)
    tallies: list[Tally] = []
    for _ in range(3):
        tasks = [Evaluate(0, chunk, chunk + 1) for chunk in range(number)]
        replies = crew.gather(tasks)
        assert [reply.task for reply in replies] == tasks
        assert tuple(crew.idle()) == free
        tallies = [tally for reply in replies for tally in reply.result.tallies]
    replica = case.setup.replica()
    replica.load(0, server.vectors)
    assert replica.perform(Evaluate(0, 0, number), Alone(), Memory()).tallies == tuple(tallies)
    assert sum(tally.count for tally in tallies) == case.setup.tests
    for _ in crew.workers[1:]:
        reply = collect(crew)
        assert isinstance(reply.task, Gradient)
        assert reply.task.ticket.batch == reply.worker
        free = (*free, reply.worker)
        assert tuple(crew.idle()) == free
        expected = case.reference(server, reply.task.ticket)
        assert bits(reply.result.vectors) == bits(expected.vectors)
    assert len(free) == len(crew.workers)
    crew.gather([Evaluate(0, 0, number)])
    assert tuple(crew.idle()) == free
    return [tally.loss.hex() for tally in tallies]


@check(SMALL)
def one_task_object_many_times(case: Case) -> None:
    crew, task = case.crew, Gradient(0, Ticket(0, 2), 0.25)
    crew.publish(0, case.setup.server().vectors)
    crew.submit(crew.workers[-1], task)
    replies = crew.gather([task] * 7)
    assert [reply.task for reply in replies] == [task] * 7
    assert all(reply.result.vectors == () for reply in replies)
    assert len({reply.result.tallies for reply in replies}) == 1
    assert collect(crew).worker == crew.workers[-1]


@check(SMALL)
def each_reply_comes_with_its_position_and_vectors(case: Case) -> None:
    """Tasks at versions of their own; a reply to an earlier task stays for ``collect``."""
    crew, server, tasks = case.crew, case.setup.server(), []
    crew.publish(0, server.vectors)
    crew.submit(crew.workers[0], Gradient(0, Ticket(1, 0)))
    expected = []
    for version in range(1, 8):
        moved = (server.vectors[0] + version, *server.vectors[1:])
        crew.publish(version, moved)
        tasks.append(Gradient(version, Ticket(0, version - 1)))
        replica = case.setup.replica()
        replica.load(version, moved)
        expected.append(bits(replica.perform(tasks[-1], Alone(), Memory()).vectors))
    found = {k: (reply.task, bits(reply.result.vectors)) for k, reply in crew.each(tasks)}
    assert [found[k] for k in range(7)] == list(zip(tasks, expected, strict=True))
    assert collect(crew).task == Gradient(0, Ticket(1, 0))
    for version in range(8):
        crew.retire(version)
    assert list(crew.each([])) == []


def left_to_right(results: Sequence[Result]) -> list[Tensor]:
    """Sums of the results' vectors, formed by NumPy; counters count once."""
    sums = [vector.numpy().copy() for vector in results[0].vectors]
    for result in results[1:]:
        for total, vector in zip(sums, result.vectors, strict=True):
            if total.dtype == np.float32:
                total += vector.numpy()
            else:
                np.maximum(total, vector.numpy(), out=total)
    return [torch.from_numpy(total) for total in sums]


@check(SMALL, everywhere=True)
@check(Setup("wide"), name="_wide", everywhere=True)
def reduce_sums_in_task_order(case: Case) -> list[str]:
    """Bit for bit; more tasks than workers, fewer, and one; with other replies on their way."""
    crew, server = case.crew, case.setup.server()
    crew.publish(0, server.vectors)
    digests, kept = [], 0
    for count in (1, 2, 4, 7, 13):
        for worker in crew.workers[::2]:
            crew.submit(worker, Gradient(0, Ticket(1, worker)))
            kept += 1
        tasks = [Gradient(0, ticket, 1 / (3 + ticket.batch)) for ticket in reversed(tickets(count))]
        out = tuple(torch.full_like(vector, 7) for vector in server.vectors)
        idle = tuple(crew.idle())
        replies = crew.reduce(tasks, out)
        assert tuple(crew.idle()) == idle
        expected = [case.reference(server, task.ticket, task.weight) for task in tasks]
        expected = [replace(e, vectors=tuple(v.clone() for v in e.vectors)) for e in expected]
        assert bits(out) == bits(left_to_right(expected))
        assert [reply.task for reply in replies] == tasks
        assert [reply.result.tallies for reply in replies] == [e.tallies for e in expected]
        assert all(reply.result.vectors == () for reply in replies)
        digests.append(digest(out))
    for _ in range(kept):
        reply = collect(crew)
        assert isinstance(reply.task, Gradient)
        expected_vectors = case.reference(server, reply.task.ticket).vectors
        assert bits(reply.result.vectors) == bits(expected_vectors)
    return digests


@check(SMALL)
def reduce_has_room_for_two_early_replies_only(case: Case) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mpi_crew, "_SPARE_BYTES", 1)
        return reduce_sums_in_task_order(case)


def rounds(server: ParameterServer, setup: Setup, slots: int, count: int) -> list[list[Ticket]]:
    """Tickets of rounds that reach into the second epoch: its first round is short."""
    book = setup.book()
    return [list(book.issue_round(slots)) for _ in range(count)]


def round_by_server(case: Case, server: ParameterServer, slots: Sequence[Ticket]) -> list[Tally]:
    """One synchronous round through the server; a gradient that is not finite is left out."""
    crew, version = case.crew, server.version
    crew.publish(version, server.vectors)
    counts = [case.setup.plan(0).count(ticket.batch) for ticket in slots]
    tasks = [
        Gradient(version, ticket, count / sum(counts))
        for ticket, count in zip(slots, counts, strict=True)
    ]
    replies = crew.reduce(tasks, server.inbox)
    crew.retire(version)
    tallies = [reply.result.tallies[0] for reply in replies]
    if is_finite(server.inbox[0]):
        server.apply(server.inbox, epoch=slots[0].epoch)
        return tallies
    return [replace(tally, refused=True) for tally in tallies]


def together(
    case: Case, server: ParameterServer, planned: Sequence[Sequence[Ticket]], **options: bool
) -> list[tuple[Tally, ...]]:
    """Rounds among the workers from the server's state, and back to the server."""
    crew, version = case.crew, server.version
    crew.publish(version, *server.portable())
    task = Rounds(version, tuple(map(tuple, planned)), install=True, **options)
    after, tallies = crew.together(task)
    crew.retire(version)
    server.follow(after)
    server.adopt(crew.fetch(after))
    return tallies


def same_state(one: ParameterServer, other: ParameterServer) -> None:
    """Parameters, buffers, optimizer and schedule, bit for bit."""
    (mine, structure), (theirs, other_structure) = one.portable(), other.portable()
    assert structure == other_structure
    assert bits(mine) == bits(theirs)


SCHEDULED = Setup(scheduler=tuple(ONE_CYCLE.items()))


@check(SCHEDULED, everywhere=True)
@check(Setup("wide"), name="_wide", everywhere=True)
@check(Setup("dropout", optimizer=tuple(ADAM.items())), name="_dropout", everywhere=True)
@check(Setup("replacing"), name="_replacing", everywhere=True)
@check(Setup("evaluating"), name="_evaluating", everywhere=True)
def together_is_as_through_the_server(case: Case) -> list[str]:
    """Bit for bit, with uneven slots, more and fewer slots than workers, and a last small batch."""
    digests = []
    for turn, slots in enumerate((1, 2, 4, 5)):
        base = 1000 * turn
        server, away = case.setup.server(base), case.setup.server(base + 500)
        planned = rounds(server, case.setup, slots, 6)
        expected = [tuple(round_by_server(case, server, slots)) for slots in planned]
        assert together(case, away, planned) == expected
        assert away.version == base + 506
        same_state(server, away)
        digests.append(digest(server.vectors))
    return digests


@check(Setup(optimizer=tuple(ADAM.items()), scheduler=(*ONE_CYCLE.items(),)), everywhere=True)
def a_restored_state_is_installed(case: Case) -> str:
    """Even when the workers hold the version; what was lent stays as it is."""
    server, planned = case.setup.server(), rounds(case.setup.server(), case.setup, 3, 6)
    together(case, server, planned[:3])
    saved = [tensor.clone() for tensor in server.portable()[0]]
    other = case.setup.server()
    other.adopt(Result((), tuple(saved), server.version, server.portable()[1]))
    before = bits(other.portable()[0])
    together(case, server, planned[3:])
    case.crew.publish(other.version, *other.portable())
    task = Rounds(other.version, tuple(map(tuple, planned[3:])), install=True)
    after, _ = case.crew.together(task)
    assert bits(other.portable()[0]) == before
    case.crew.retire(other.version)
    other.follow(after)
    other.adopt(case.crew.fetch(after))
    same_state(server, other)
    return digest(server.vectors)


@check(SCHEDULED, everywhere=True)
def rounds_go_on_where_they_were(case: Case) -> None:
    """The workers keep version and optimizer between two calls: nothing is sent."""
    server, planned = case.setup.server(), rounds(case.setup.server(), case.setup, 3, 6)
    for slots in planned:
        round_by_server(case, server, slots)
    away, crew = case.setup.server(100), case.crew
    crew.publish(100, *away.portable())
    version, _ = crew.together(Rounds(100, tuple(map(tuple, planned[:2])), install=True))
    crew.retire(100)
    assert version == 102
    crew.gather([Evaluate(version, 0, 1)] * 5)
    version, _ = crew.together(Rounds(version, tuple(map(tuple, planned[2:]))))
    away.adopt(crew.fetch(version))
    same_state(server, away)


POISONED = Setup(poisoned=0)


def poisoned_round(setup: Setup, planned: Sequence[Sequence[Ticket]]) -> int:
    """The round of the first epoch with the sample that is not finite."""
    bad = [
        number
        for number, slots in enumerate(planned)
        if any(setup.poisoned in setup.plan(0).rows(ticket.batch) for ticket in slots)
    ]
    assert len(bad) == 1
    return bad[0]


@check(POISONED, everywhere=True)
def a_bad_round_is_skipped(case: Case) -> str:
    server, away = case.setup.server(), case.setup.server(100)
    planned = rounds(server, case.setup, 2, 7)
    bad = poisoned_round(case.setup, planned)
    expected = [tuple(round_by_server(case, server, slots)) for slots in planned]
    tallies = together(case, away, planned, skip_bad=True)
    assert repr(tallies) == repr(expected)  # the losses are nan
    assert [t[0].refused for t in tallies] == [number == bad for number in range(7)]
    assert [tally.finite for tally in tallies[bad]].count(False) == 1
    assert away.version == 106
    same_state(server, away)
    assert all(torch.isfinite(vector).all() for vector in server.vectors)
    return digest(server.vectors)


@check(POISONED, everywhere=True)
def rounds_end_at_a_bad_one(case: Case) -> None:
    server, away = case.setup.server(), case.setup.server(100)
    planned = rounds(server, case.setup, 2, 7)
    bad = poisoned_round(case.setup, planned)
    for slots in planned[:bad]:
        round_by_server(case, server, slots)
    tallies = together(case, away, planned)
    assert len(tallies) == bad + 1
    assert all(tally.refused for tally in tallies[bad])
    assert away.version == 100 + bad
    same_state(server, away)


@check(POISONED)
def a_bad_gradient_is_named(case: Case) -> None:
    """Its worker says so; the next one of the same worker is good."""
    crew, plan = case.crew, case.setup.plan(0)
    crew.publish(0, case.setup.server().vectors)
    for batch in range(len(plan)):
        crew.submit(crew.workers[0], Gradient(0, Ticket(0, batch)))
        (tally,) = collect(crew).result.tallies
        assert tally.finite == (case.setup.poisoned not in plan.rows(batch))


def whole(case: Case, server: ParameterServer, *given: Task) -> Tensor:
    """The vector that one replica answers the last of some tasks with."""
    replica, memory = case.setup.replica(), Memory()
    replica.load(server.version, server.vectors)
    for task in given[:-1]:
        replica.perform(task, Alone(), memory)
    (vector,) = replica.perform(given[-1], Alone(), memory).vectors
    return vector.clone()


@check(SMALL, everywhere=True)
@check(Setup("dropout"), name="_dropout", everywhere=True)
def slices_are_accrued_and_handed_over(case: Case) -> str:
    """At two versions, some alone, with an evaluation between: each worker sends its own sum."""
    crew, server = case.crew, case.setup.server()
    dealt = [tickets(13)[index :: len(crew.workers)] for index in range(len(crew.workers))]
    sums = []
    for version in range(2):
        server.follow(version)
        crew.publish(version, server.vectors)
        options: Any = {"samples": case.setup.samples, "quanta": (2.0**-40,), "most": 1.0}
        for worker, own in zip(crew.workers, dealt, strict=True):
            for part in (own[:1], own[1:]):
                crew.submit(worker, Slices(version, tuple(part), **options))
            crew.submit(worker, Slices(version, (Ticket(0, 5),), **options, alone=True))
        crew.gather([Evaluate(version, 0, 1)] * 3)
        for worker in crew.workers:
            crew.submit(worker, HandOver(version))
        total = torch.zeros(server.vectors[0].numel(), dtype=torch.int64)
        lonely = whole(case, server, Slices(version, (Ticket(0, 5),), **options, alone=True))
        while len(crew.idle()) < len(crew.workers):
            reply = collect(crew)
            if isinstance(reply.task, HandOver):
                total += reply.result.vectors[0]
            elif reply.task.alone:  # type: ignore[union-attr]
                assert torch.equal(reply.result.vectors[0], lonely)
            else:
                assert reply.result.vectors == ()
                assert reply.result.seconds > 0 or not reply.result.tallies
        expected = whole(
            case, server, Slices(version, tuple(tickets(13)), **options), HandOver(version)
        )
        assert torch.equal(total, expected)
        sums.append(total)
        crew.retire(version)
        advance(server, case.reference(server, Ticket(0, 2)).vectors)
    return digest(sums)


@check(SMALL, everywhere=True)
def statistics_are_made_anew(case: Case) -> str:
    crew, server = case.crew, case.setup.server()
    crew.publish(0, server.vectors)
    out = tuple(torch.full_like(vector, 7) for vector in server.vectors[1:])
    crew.reduce([Buffers(0, tuple(tickets(4)))], out)
    replica = case.setup.replica()
    replica.load(0, server.vectors)
    assert bits(out) == bits(
        replica.perform(Buffers(0, tuple(tickets(4))), Alone(), Memory()).vectors
    )
    crew.retire(0)
    return digest(out)


@check(SMALL)
def vectors_are_borrowed_until_the_next_reply(case: Case) -> None:
    crew, server, other = case.crew, case.setup.server(), case.setup.server()
    crew.publish(0, server.vectors)
    crew.publish(1, other.vectors)
    for ticket in tickets(6):
        for worker in crew.workers:
            crew.submit(worker, Gradient(0, ticket))
    for _ in range(6 * len(crew.workers)):
        reply = collect(crew)
        before = bits(reply.result.vectors)
        crew.now()
        crew.retire(1)
        advance(other, reply.result.vectors)
        crew.publish(1, other.vectors)
        crew.idle()
        assert bits(reply.result.vectors) == before
        assert isinstance(reply.task, Gradient)
        assert before == bits(case.reference(server, reply.task.ticket).vectors)


@check(SMALL)
def together_needs_all_workers(case: Case) -> None:
    crew = case.crew
    crew.publish(0, case.setup.server().vectors)
    crew.submit(crew.workers[-1], Gradient(0, Ticket(0, 0)))
    with pytest.raises(RuntimeError, match="collect their replies first"):
        crew.together(Rounds(0, ((Ticket(0, 1),),), install=True))
    collect(crew)
    assert crew.together(Rounds(0, ((Ticket(0, 1),),)))[0] == 1


@check(Setup("wide"))
def close_takes_in_what_is_owed(case: Case) -> None:
    """Open tasks with large vectors, kept replies and borrowed vectors; the runner closes the crew."""
    crew = case.crew
    crew.publish(0, case.setup.server().vectors)
    for ticket in tickets(3):
        for worker in crew.workers:
            crew.submit(worker, Gradient(0, ticket))
    collect(crew)
    crew.gather([Evaluate(0, 0, 1)] * len(crew.workers))
    crew.submit(crew.workers[0], Gradient(0, Ticket(0, 4)))
    assert crew.now() >= 0
