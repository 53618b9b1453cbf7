"""Typed vectors over messages: what arrives is what was sent, to the last bit."""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from psopt.crew.wire import (
    CHUNK,
    Damaged,
    Outgoing,
    RankGone,
    Request,
    Spec,
    Tag,
    Wire,
    raw_bytes,
    spec_of,
)
from tests.crew import wire_cases
from tests.crew.wire_cases import CHUNKS, REPLY, TASK, TENSORS, all_bits, receive
from tests.replica.support import bits


@dataclass(eq=False)
class Pending:
    """One end of a message; ``buffer`` is read or written when both ends are there."""

    buffer: Any
    done: bool = False

    def Test(self) -> bool:
        return self.done

    def Cancel(self) -> None:
        raise AssertionError


@dataclass
class Fake:
    """MPI in memory: messages between two ranks match in order, by source and tag.

    A sent buffer is read when it is matched, so memory that must not change meanwhile shows.
    """

    rank: int
    post: dict[tuple[int, int, int], tuple[deque[Pending], deque[Pending]]]
    sizes: list[int] = field(default_factory=list)
    gone: frozenset[int] = frozenset()

    def look(self) -> None:
        """Nobody dies."""

    def Isend(self, buf: Any, dest: int, tag: int) -> Request:
        self.sizes.append(len(buf))
        return self._put(buf, self.rank, dest, tag, 0)

    def Irecv(self, buf: Any, source: int, tag: int) -> Request:
        return self._put(buf, source, self.rank, tag, 1)

    def Recv(self, buf: Any, source: int, tag: int) -> None:
        assert self._put(buf, source, self.rank, tag, 1).done

    def probe(self, source: int | None, tag: int) -> tuple[int, int] | None:
        for (sender, to, kind), (sent, _) in self.post.items():
            if to == self.rank and kind == tag and source in (None, sender) and sent:
                return sender, len(sent[0].buffer)
        return None

    def _put(self, buf: Any, source: int, dest: int, tag: int, end: int) -> Pending:
        queues = self.post.setdefault((source, dest, tag), (deque(), deque()))
        pending = Pending(buf)
        queues[end].append(pending)
        sent, wanted = queues
        while sent and wanted:
            one, other = sent.popleft(), wanted.popleft()
            assert len(one.buffer) == len(other.buffer)
            other.buffer[:] = one.buffer
            one.done = other.done = True
        return pending


def pair(chunk: int = CHUNK) -> tuple[Wire, Wire]:
    post: dict[Any, Any] = {}
    return Wire(Fake(0, post), chunk), Wire(Fake(1, post), chunk)


@pytest.mark.parametrize("chunk", [*CHUNKS, 7, 1])
@pytest.mark.parametrize("name", TENSORS)
def test_round_trip(name: str, chunk: int) -> None:
    mine, theirs = pair(chunk)
    wire_cases.round_trip(mine, 1, name, lambda: wire_cases.answer(theirs, 0, name))


@pytest.mark.mpi
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", TENSORS)
def test_round_trip_between_ranks(name: str, chunk: int, real_ranks: dict[str, Any]) -> None:
    found = real_ranks.get(f"wire/{chunk}/{name}", "not run: the job has ended before")
    assert found == {"result": None}, f"\n{found}"


@given(st.integers(0, 40), st.integers(1, 50), st.sampled_from(wire_cases.DTYPES))
@settings(max_examples=40, deadline=None)
def test_any_size_in_any_chunks(size: int, chunk: int, dtype: torch.dtype) -> None:
    mine, theirs = pair(chunk)
    tensor = all_bits(dtype, size)
    leaving = mine.send(1, TASK, None, (tensor, tensor))
    _, vectors = receive(theirs, 0, TASK, ())
    assert leaving.done()
    assert bits(vectors) == bits([tensor, tensor])


def test_a_message_keeps_below_the_chunk() -> None:
    fake = Fake(0, {})
    Wire(fake, 1024).send(1, TASK, None, (torch.ones(1000),))
    assert fake.sizes[1:] == [1024, 1024, 1024, 928]


def test_received_in_place() -> None:
    mine, theirs = pair(64)
    place = torch.zeros(5, 100)
    mine.send(1, TASK, None, (torch.ones(100), torch.ones(3)))
    _, vectors = receive(theirs, 0, TASK, (place[2],))
    assert vectors[0].data_ptr() == place[2].data_ptr()
    assert torch.equal(place.sum(1), torch.tensor([0.0, 0.0, 100.0, 0.0, 0.0]))
    assert torch.equal(vectors[1], torch.ones(3))


def test_a_place_with_a_stride_of_a_size_1_dimension() -> None:
    mine, theirs = pair()
    base = torch.zeros(10)
    mine.send(1, TASK, None, (torch.ones(1),))
    receive(theirs, 0, TASK, (base[3::10],))
    assert base.nonzero().tolist() == [[3]]


@pytest.mark.parametrize(
    "place",
    [
        torch.zeros(4),
        torch.zeros(3, dtype=torch.float64),
        torch.zeros(3, dtype=torch.int32),
        torch.zeros(3, 1),
        torch.zeros(6)[::2],
    ],
)
def test_a_place_that_does_not_fit_is_left_alone(place: torch.Tensor) -> None:
    mine, theirs = pair()
    mine.send(1, TASK, None, (torch.ones(3),))
    _, (vector,) = receive(theirs, 0, TASK, (place,))
    assert torch.equal(vector, torch.ones(3))
    assert not place.any()


def test_messages_of_two_kinds_do_not_mix() -> None:
    mine, theirs = pair(16)
    mine.send(1, TASK, "task", (torch.zeros(9),))
    mine.send(1, REPLY, "reply", (torch.ones(9),))
    mine.send(1, TASK, "next", (torch.full((9,), 2.0),))
    content, (vector,) = receive(theirs, 0, REPLY, ())
    assert (content, vector.sum()) == ("reply", 9)
    for expected, total in (("task", 0), ("next", 18)):
        content, (vector,) = receive(theirs, 0, TASK, ())
        assert (content, vector.sum()) == (expected, total)


def test_a_contiguous_tensor_is_sent_from_its_own_memory() -> None:
    tensor = torch.zeros(6)
    raw = raw_bytes(tensor.view(2, 3))
    tensor.fill_(1)
    assert raw.tobytes() == np.ones(6, dtype=np.float32).tobytes()


def test_no_tensor_is_pickled() -> None:
    fake = Fake(0, {})
    Wire(fake).send(1, TASK, {"a": 1}, (torch.ones(100_000),))
    assert fake.sizes[0] < 200
    assert pickle.loads(bytes(fake.post[0, 1, Tag.TASK][0][0].buffer))[0] == {"a": 1}


@pytest.mark.parametrize(
    "tensor", [torch.eye(2).to_sparse(), torch.zeros(2, device="meta")], ids=["sparse", "meta"]
)
def test_what_the_wire_does_not_carry(tensor: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="the wire carries dense host tensors, not torch"):
        raw_bytes(tensor)


def test_spec() -> None:
    assert spec_of(torch.zeros(2, 0, dtype=torch.bfloat16)) == Spec("bfloat16", (2, 0))


def test_outgoing_is_done_when_all_of_it_is() -> None:
    parts = [Pending(b""), Pending(b""), Pending(b"")]
    outgoing = Outgoing([*parts], [])
    for part in parts:
        assert not outgoing.done()
        part.done = True
    assert outgoing.done()


def test_what_comes_from_the_dead_is_not_taken() -> None:
    """A message may be there in part only: its receiver is told."""
    here, there = pair()
    outgoing = there.send(0, (Tag.REPLY, Tag.REPLY_VECTOR), "said", (torch.ones(3),))
    found = here.probe(None, Tag.REPLY)
    assert found is not None
    source, size = found
    _, specs = here.header(source, Tag.REPLY, size)
    here._comm.gone = frozenset({source})  # type: ignore[misc]
    with pytest.raises(RankGone):
        here.vectors(source, Tag.REPLY_VECTOR, specs, ())
    assert outgoing.done()


def test_a_damaged_header_is_not_looked_at() -> None:
    """Whichever bit of it, that of its checksum included; without checksums it is taken as it comes."""
    post: dict[Any, Any] = {}
    fake = Fake(1, post)
    mine, theirs = Wire(Fake(0, post), digest=True), Wire(fake, digest=True)
    mine.send(1, TASK, {"serial": 3}, (torch.ones(2),))
    (_, size) = theirs.probe(0, Tag.TASK) or (0, 0)
    content, vectors = receive(theirs, 0, TASK, ())
    assert content == {"serial": 3}
    assert torch.equal(vectors[0], torch.ones(2))
    for bit in range(8 * size):
        sent = mine.send(1, TASK, {"serial": 3}, (torch.ones(2),))
        sent.memory[0][bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged, match="from rank 0 arrived damaged"):
            theirs.header(0, Tag.TASK, size)
    mine.send(1, TASK, None, (), torn=True)
    (_, size) = theirs.probe(0, Tag.TASK) or (0, 0)
    with pytest.raises(Damaged):
        theirs.header(0, Tag.TASK, size)
