"""Plan and ticket book: every sample once an epoch, whatever happens."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psopt.data.plan import BatchPlan, Ticket, TicketBook


@given(st.integers(1, 200), st.integers(1, 70), st.integers(0, 2**40), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_batches_cut_a_permutation(samples: int, size: int, seed: int, epoch: int) -> None:
    plan = BatchPlan(seed, epoch, samples, size)
    batches = [plan.rows(batch) for batch in range(len(plan))]
    assert [len(rows) for rows in batches] == [plan.count(batch) for batch in range(len(plan))]
    assert all(len(rows) == size for rows in batches[:-1])
    rows = np.concatenate(batches)
    assert rows.dtype == np.int64
    assert sorted(rows) == list(range(samples))


def test_a_plan_is_a_pure_function_of_seed_and_epoch() -> None:
    rows = BatchPlan(7, 2, 1000, 64).rows(3)
    for other in (BatchPlan(7, 3, 1000, 64), BatchPlan(8, 2, 1000, 64), BatchPlan(1, 0, 1000, 64)):
        assert not np.array_equal(other.rows(3), rows)
    assert np.array_equal(BatchPlan(7, 2, 1000, 64).rows(3), rows)


def test_the_order_is_part_of_the_format() -> None:
    """A resumed job must see the same rows in a later version: this may never change."""
    assert BatchPlan(1, 0, 10, 10).rows(0).tolist() == BatchPlan(1, 0, 10, 4).rows(0).tolist() + (
        BatchPlan(1, 0, 10, 4).rows(1).tolist() + BatchPlan(1, 0, 10, 4).rows(2).tolist()
    )
    assert BatchPlan(1, 0, 10, 10).rows(0).tolist() == [8, 4, 7, 0, 1, 2, 5, 9, 6, 3]


def test_rows_are_the_callers_own() -> None:
    plan = BatchPlan(1, 0, 10, 4)
    rows = plan.rows(0)
    before = rows.copy()
    rows[:] = -1
    assert np.array_equal(plan.rows(0), before)


@pytest.mark.parametrize("batch", [-1, 3])
def test_a_batch_that_is_not_there(batch: int) -> None:
    with pytest.raises(IndexError, match=r"not in epoch 0: its batches are 0\.\.2"):
        BatchPlan(1, 0, 10, 4).rows(batch)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 0, 0, 4), "samples must be at least 1"),
        ((1, 0, 10, 0), "batch_size must be at least 1"),
        ((-1, 0, 10, 4), "seed must be at least 0"),
        ((1, -1, 10, 4), "epoch must be at least 0"),
    ],
)
def test_wrong_arguments(arguments: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchPlan(*arguments)


def test_no_epochs() -> None:
    with pytest.raises(ValueError, match="epochs must be at least 1"):
        TicketBook(1, 10, 4, 0)


def test_three_samples_and_seven_workers() -> None:
    book = TicketBook(1, 3, 1, 2)
    assert book.issue_round(7) == (Ticket(0, 0), Ticket(0, 1), Ticket(0, 2))
    assert book.issue_round(7) == (Ticket(1, 0), Ticket(1, 1), Ticket(1, 2))
    assert book.issue_round(7) == ()
    assert book.issue() is None
    assert not book.finished


def test_a_round_stays_within_an_epoch() -> None:
    book = TicketBook(1, 10, 4, 2)
    assert len(book.issue_round(2)) == 2
    assert book.issue_round(2) == (Ticket(0, 2),)
    assert book.issue_round(2) == (Ticket(1, 0), Ticket(1, 1))
    book.give_back(Ticket(0, 1))
    assert book.issue_round(3) == (Ticket(0, 1),)  # what is given back is of an older epoch
    assert book.issue_round(3) == (Ticket(1, 2),)


def test_given_back_tickets_come_first_in_order() -> None:
    book = TicketBook(1, 100, 10, 1)
    tickets = [book.issue() for _ in range(5)]
    for place in (3, 1, 2):
        ticket = tickets[place]
        assert ticket is not None
        book.give_back(ticket)
    assert [book.issue() for _ in range(4)] == [*tickets[1:4], Ticket(0, 5)]


def test_samples_epoch_and_finished_count_what_is_applied() -> None:
    book = TicketBook(1, 10, 4, 2)
    applied = []
    while (ticket := book.issue()) is not None:
        assert not book.finished
        applied.append(book.count(ticket))
        book.applied(ticket)
        assert book.samples == sum(applied)
    assert applied == [4, 4, 2] * 2
    assert book.epoch == 2.0
    assert book.finished


@pytest.mark.parametrize("again", [False, True])
def test_a_ticket_is_closed_once(again: bool) -> None:
    book = TicketBook(1, 10, 4, 1)
    ticket = book.issue()
    assert ticket is not None
    if again:
        book.applied(ticket)
    else:
        ticket = Ticket(0, 1)
    for close in (book.applied, book.give_back):
        with pytest.raises(ValueError, match=r"Ticket\(epoch=0, batch=\d\) is not open"):
            close(ticket)
    assert book.samples == (4 if again else 0)


@given(
    samples=st.integers(1, 40),
    size=st.integers(1, 9),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=80, deadline=None)
def test_deaths_and_resumes_lose_and_repeat_nothing(
    samples: int, size: int, epochs: int, seed: int
) -> None:
    """The multiset of samples seen across resumes equals the uninterrupted run's."""
    chance = random.Random(seed)
    book = TicketBook(seed, samples, size, epochs)
    held: list[Ticket] = []
    seen: list[tuple[int, int]] = []
    for _ in range(100_000):
        if book.finished:
            break
        action = chance.random()
        if action < 0.4:
            ticket = book.issue()
            held += [ticket] if ticket else []
        elif action < 0.5:
            held += book.issue_round(chance.randint(1, 4))
        elif action < 0.85 and held:
            ticket = held.pop(chance.randrange(len(held)))
            book.applied(ticket)
            rows = book.plan(ticket.epoch).rows(ticket.batch).tolist()
            seen += [(ticket.epoch, row) for row in rows]
        elif action < 0.95 and held:
            book.give_back(held.pop(chance.randrange(len(held))))
        elif action >= 0.95:
            state = json.loads(json.dumps(book.state()))
            book = TicketBook(seed, samples, size, epochs)
            book.restore(state)
            held = []
        assert book.open == set(held)
        assert book.samples == len(seen)
    assert book.finished
    assert sorted(seen) == [(epoch, row) for epoch in range(epochs) for row in range(samples)]


def test_a_resume_may_add_epochs() -> None:
    book = TicketBook(1, 10, 4, 1)
    for ticket in book.issue_round(3):
        book.applied(ticket)
    more = TicketBook(1, 10, 4, 2)
    more.restore(book.state())
    assert not more.finished
    assert more.issue() == Ticket(1, 0)


@pytest.mark.parametrize("other", [(2, 10, 4, 1), (1, 11, 4, 1), (1, 10, 5, 1)])
def test_a_resume_of_another_job_is_refused(other: tuple[int, int, int, int]) -> None:
    state = TicketBook(1, 10, 4, 1).state()
    with pytest.raises(ValueError, match="resume with the saved value, or start a new run"):
        TicketBook(*other).restore(state)


@pytest.mark.parametrize(
    "change",
    [{"samples": 3}, {"again": [[0, 2]]}, {"next": [0, 2]}, {"again": [[0, 0]]}],
)
def test_a_state_that_does_not_add_up_is_refused(change: dict[str, object]) -> None:
    book = TicketBook(1, 10, 4, 1)
    ticket = book.issue()
    assert ticket is not None
    book.applied(ticket)
    good = book.state()
    bad = {**good, **change}
    with pytest.raises(ValueError, match="do not agree"):
        book.restore(bad)
    assert book.state() == good


def test_memory_and_cost_do_not_grow_with_the_plan() -> None:
    book = TicketBook(1, 10**12, 1, 10**6)
    ticket = book.issue()
    assert ticket is not None
    book.applied(ticket)
    assert book.issue() == Ticket(0, 1)
    assert len(json.dumps(book.state())) < 200


def test_refused_samples_are_done_with_and_not_applied() -> None:
    book = TicketBook(1, 10, 4, 2)
    assert book.rows == 10
    one, two, three = book.issue_round(3)
    book.applied(one)
    book.refused(three)
    assert (book.samples, book.refused_samples, book.position) == (4, 2, 6)
    assert book.epoch == 0.6
    assert book.open == {two}
    book.refused(two)
    assert (book.samples, book.refused_samples, book.position) == (4, 6, 10)
    assert book.epoch == 1.0
    for ticket in book.issue_round(3):
        assert not book.finished
        book.refused(ticket)
    assert book.finished
    assert (book.samples, book.position) == (4, 20)


def test_a_refused_ticket_is_closed() -> None:
    book = TicketBook(1, 10, 4, 1)
    (ticket,) = book.issue_round(1)
    book.refused(ticket)
    for close in (book.applied, book.refused, book.give_back):
        with pytest.raises(ValueError, match="is not open"):
            close(ticket)
    with pytest.raises(ValueError, match="is not open"):
        book.refused(Ticket(0, 1))
    assert book.position == 4
    assert book.issue() == Ticket(0, 1)


def test_refused_samples_survive_a_resume() -> None:
    book = TicketBook(1, 10, 4, 2)
    one, two, three = book.issue_round(3)
    book.refused(one)
    book.applied(three)
    again = TicketBook(1, 10, 4, 2)
    again.restore(json.loads(json.dumps(book.state())))
    assert (again.samples, again.refused_samples, again.position) == (2, 4, 6)
    assert again.issue() == two  # open at the time
    assert again.issue() == Ticket(1, 0)


def test_a_state_with_other_refused_samples_is_refused() -> None:
    book = TicketBook(1, 10, 4, 1)
    (ticket,) = book.issue_round(1)
    book.refused(ticket)
    with pytest.raises(ValueError, match="do not agree"):
        book.restore({**book.state(), "refused": 0})


def test_rows_do_not_depend_on_the_batch_size_or_on_who_asks() -> None:
    """Ticket, seed and samples say which rows: plan and book agree, an epoch being one order."""
    book = TicketBook(5, 50, 8, 3)
    whole = BatchPlan(5, 2, 50, 50).rows(0)
    for batch in range(len(book.plan(2))):
        rows = book.plan(2).rows(batch)
        assert np.array_equal(rows, whole[8 * batch : 8 * batch + 8])
        assert len(rows) == book.count(Ticket(2, batch))
