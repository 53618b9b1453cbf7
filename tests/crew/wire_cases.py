"""Tensors that the wire carries, and a round trip of each: over a fake, and over real ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from psopt.crew.nap import Nap
from psopt.crew.wire import CHUNK, Outgoing, Tag, Wire
from psopt.replica.tasks import Vectors
from tests.replica.support import bits

CHUNKS = (CHUNK, 1024, 1000)
TASK, REPLY = (Tag.TASK, Tag.TASK_VECTOR), (Tag.REPLY, Tag.REPLY_VECTOR)
DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)


def all_bits(dtype: torch.dtype, count: int = 1501) -> Tensor:
    """Random bit patterns: every kind of number, infinities, signed zeros and nan with a payload."""
    generator = torch.Generator().manual_seed(count)
    if dtype == torch.bool:
        return torch.randint(2, (count,), generator=generator).bool()
    raw = torch.randint(256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype)


def shapes() -> Vectors:
    base = torch.arange(24, dtype=torch.float32)
    return (
        torch.tensor(2.5),
        base[5],
        torch.empty(0),
        torch.empty(3, 0, 2, dtype=torch.int64),
        base.view(4, 6).t(),
        base.view(4, 6)[1:3, ::2],
        base[::3],
        base[::24],
        base.view(2, 3, 4)[:, 1:2, :1],
        base.view(4, 6)[:, :1],
        torch.ones(3, 1).expand(3, 5),
        torch.tensor(True),
        torch.nn.Parameter(torch.ones(2, 2)),
        torch.empty(2, 3, 4, 5).normal_().to(memory_format=torch.channels_last),
    )


TENSORS: dict[str, Callable[[], Vectors]] = {
    "shapes": shapes,
    "nothing": tuple,
    "only_empty": lambda: (torch.empty(0), torch.empty(0, 4, dtype=torch.bool)),
    **{
        str(dtype).removeprefix("torch."): lambda dtype=dtype: (all_bits(dtype),)
        for dtype in DTYPES
    },
    "many": lambda: tuple(all_bits(dtype, size) for dtype in DTYPES for size in (1, 255, 256, 257)),
}


def receive(wire: Wire, source: int, tags: tuple[Tag, Tag], places: Vectors) -> tuple[str, Vectors]:
    nap = Nap()
    while (found := wire.probe(source, tags[0])) is None:
        nap()
    content, specs = wire.header(found[0], tags[0], found[1])
    return content, wire.vectors(found[0], tags[1], specs, places)


def places_for(name: str) -> Vectors:
    """Memory of the right kind, so that all is received in place."""
    return tuple(torch.zeros(v.shape, dtype=v.dtype) for v in TENSORS[name]())


def answer(wire: Wire, source: int, name: str) -> Outgoing:
    """Receive the tensors in place, and send them back from there."""
    places = places_for(name)
    content, vectors = receive(wire, source, TASK, places)
    assert all(vector is place for vector, place in zip(vectors, places, strict=True))
    return wire.send(source, REPLY, content, vectors)


def round_trip(
    wire: Wire, peer: int, name: str, answered: Callable[[], object] = lambda: None
) -> None:
    """Send the tensors, and receive them back into new memory."""
    tensors = TENSORS[name]()
    before = bits(tensors)
    leaving = wire.send(peer, TASK, name, tensors)
    answered()
    content, back = receive(wire, peer, REPLY, ())
    leaving.wait()
    assert content == name
    assert bits(back) == before == bits(tensors)
    assert all(vector.is_contiguous() for vector in back)
