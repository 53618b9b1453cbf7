"""Dealing tasks out, and adding vectors up."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from psopt.data.plan import Ticket
from psopt.replica.tasks import (
    Evaluate,
    Gradient,
    Reply,
    Result,
    Rounds,
    deal,
    needs_vectors,
    sum_in_order,
)


@given(st.integers(0, 60), st.integers(1, 20))
def test_blocks_are_contiguous_and_even(items: int, workers: int) -> None:
    blocks = deal(items, workers)
    assert len(blocks) == workers
    assert [item for block in blocks for item in block] == list(range(items))
    sizes = {len(block) for block in blocks}
    assert max(sizes) - min(sizes) <= 1


@given(
    st.lists(
        st.integers(-(2**40), 2**40).map(lambda n: float(np.float32(n / 7))),
        min_size=1,
        max_size=30,
    )
)
def test_left_to_right(values: list[float]) -> None:
    total = np.float32(values[0])
    for value in values[1:]:
        total = np.float32(total + np.float32(value))
    out = torch.full((3,), 7.0)
    sum_in_order([torch.full((3,), value) for value in values], out)
    assert out.numpy().tobytes() == np.full(3, total, dtype=np.float32).tobytes()


def test_the_first_row_may_be_the_sum() -> None:
    out = torch.ones(3)
    sum_in_order([out, torch.ones(3), torch.ones(3)], out)
    assert out.tolist() == [3, 3, 3]


def test_counters_count_once() -> None:
    out = torch.full((2,), 99)
    sum_in_order([torch.tensor([1, 0]), torch.tensor([1, 2]), torch.tensor([0, 1])], out)
    assert out.tolist() == [1, 2]


def test_who_needs_vectors() -> None:
    ticket = Ticket(0, 0)
    for task in (Gradient(3, ticket), Evaluate(3, 0, 1), Rounds(3, ((ticket,),))):
        assert [needs_vectors(task, held) for held in (None, 2, 3)] == [True, True, False]
    assert needs_vectors(Rounds(3, ((ticket,),), install=True), 3)


def test_a_bare_reply() -> None:
    reply = Reply(1, Evaluate(0, 0, 1), Result((), (torch.ones(1),), 4))
    assert reply.bare() == Reply(1, Evaluate(0, 0, 1), Result((), (), 4))
