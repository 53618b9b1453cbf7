"""Typed vectors over point-to-point messages.

A message is a header (small, pickled: task or reply, and the vectors' shapes and dtypes) followed
by the raw bytes of each vector, in chunks below MPI's 2 GiB limit. A receiver that knows where a
vector belongs receives it in place. Bytes carry any dtype exactly; nothing is ever converted on the
wire, and no tensor is pickled. On request headers and vectors travel with checksums (CRC-32).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from psopt.crew.base import WorkerFailed
from psopt.crew.nap import Nap
from psopt.replica.tasks import Vectors

Bytes = npt.NDArray[np.uint8]
CHUNK = 1 << 30
NO_SERIAL = -1
"""In the reply of a worker that could not read which task it was given."""

_SEAL = 4  # bytes of a header's checksum


class Spec(NamedTuple):
    """What a vector is; ``crc`` where it is to be checked."""

    dtype: str
    shape: tuple[int, ...]
    crc: int | None = None


class Tag(IntEnum):
    """Message tags; each is used for one kind of message in one direction."""

    HELLO = 1
    TASK = 2
    TASK_VECTOR = 3
    REPLY = 4
    REPLY_VECTOR = 5
    PIECE = 6
    SUM = 7
    PING = 8
    PONG = 9
    FAILURE = 10
    BREAK = 11


class Request(Protocol):
    """A pending operation."""

    def Test(self) -> bool: ...  # noqa: N802
    def Cancel(self) -> None: ...  # noqa: N802


class Communicator(Protocol):
    """The few calls of an MPI communicator that the wire needs."""

    @property
    def gone(self) -> frozenset[int]: ...
    def look(self) -> None:
        """See who has died since."""

    def Isend(self, buf: Any, dest: int, tag: int) -> Request: ...  # noqa: N802
    def Irecv(self, buf: Any, source: int, tag: int) -> Request: ...  # noqa: N802
    def Recv(self, buf: Any, source: int, tag: int) -> None: ...  # noqa: N802
    def probe(self, source: int | None, tag: int) -> tuple[int, int] | None:
        """(source, bytes) of a message that has arrived from ``source`` (None: anybody)."""


@dataclass(slots=True)
class Outgoing:
    """A message on its way; keeps its memory alive until it has left."""

    requests: list[Request]
    memory: list[Any]

    def done(self) -> bool:
        """True once every buffer may be changed again."""
        while self.requests and self.requests[-1].Test():
            self.requests.pop()
        return not self.requests

    def wait(self) -> None:
        """Sleep until done."""
        nap = Nap()
        while not self.done():
            nap()


class RankGone(RuntimeError):  # noqa: N818 - reads as what happened
    """The rank at the other end has died."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"rank {rank} is gone")


class Damaged(RuntimeError):  # noqa: N818 - reads as what happened
    """A header of the rank at the other end arrived damaged; what was to follow it is not known."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"a message from rank {rank} arrived damaged")


class Wire:
    """Sends and receives messages over one communicator.

    Args:
        communicator: the ranks.
        chunk: largest number of bytes in one MPI message, below 2 GiB.
        digest: have headers and vectors travel with checksums.
    """

    def __init__(
        self, communicator: Communicator, chunk: int = CHUNK, *, digest: bool = False
    ) -> None:
        self._comm, self._chunk, self._digest = communicator, chunk, digest

    def send(
        self,
        dest: int,
        tags: tuple[Tag, Tag],
        header: Any,
        vectors: Vectors,
        arriving: Vectors | None = None,
        *,
        torn: bool = False,
    ) -> Outgoing:
        """Start a message to rank ``dest``; ``vectors`` must not change before it is ``done``.

        Args:
            dest: the rank.
            tags: of the header and of the vectors.
            header: anything small that can be pickled.
            vectors: what is sent.
            arriving: what arrives in their place, to see that it is noticed.
            torn: a bit of a header with a checksum is flipped on the way, for the same.
        """
        specs = [self._spec(vector) for vector in vectors]
        vectors = vectors if arriving is None else arriving
        pieces = [raw_bytes(vector) for vector in vectors]
        head = self._sealed(pickle.dumps((header, specs), protocol=5), torn=torn)
        requests = [self._comm.Isend(head, dest, tags[0])]
        for piece in pieces:
            requests += self.start_send(dest, tags[1], piece)
        requests.reverse()
        return Outgoing(requests, [head, pieces, vectors])

    @property
    def gone(self) -> frozenset[int]:
        """Ranks that have died, where that can be survived."""
        return self._comm.gone

    def look(self) -> None:
        """See who has died, where that can be survived."""
        self._comm.look()

    def probe(self, source: int | None, tag: Tag) -> tuple[int, int] | None:
        """(source, header size) of the first message with ``tag`` that has arrived, if any."""
        return self._comm.probe(source, tag)

    def header(self, source: int, tag: Tag, size: int) -> tuple[Any, list[Spec]]:
        """Receive the header of a message that ``probe`` has seen.

        Raises:
            Damaged: its checksum is not that of its bytes, none of which is looked at then.
        """
        head = np.empty(size, dtype=np.uint8)
        self._comm.Recv(head, source, tag)
        text = head.tobytes()
        if self._digest and text[-_SEAL:] != _seal(text[:-_SEAL]):
            raise Damaged(source)
        content, specs = pickle.loads(text)  # what follows its end is passed over
        return content, specs

    def vectors(self, source: int, tag: Tag, specs: Sequence[Spec], places: Vectors) -> Vectors:
        """Receive a message's vectors, as ``start_vectors``.

        Raises:
            RankGone: the sender has died, with or without having sent all.
        """
        taken, coming = self.start_vectors(source, tag, specs, places)
        coming.wait()
        if source in self._comm.gone:
            raise RankGone(source)
        return taken

    def start_vectors(
        self, source: int, tag: Tag, specs: Sequence[Spec], places: Vectors
    ) -> tuple[Vectors, Outgoing]:
        """Start receiving vectors: into ``places`` that are contiguous, of the same dtype and shape.

        Any other is received into new memory. They are there when the second of the two is done.
        """
        taken = []
        for index, spec in enumerate(specs):
            place = places[index] if index < len(places) else None
            fits = place is not None and spec_of(place)[:2] == spec[:2]
            if place is None or not fits or not place.is_contiguous():
                place = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype))
            taken.append(place)
        waiting: list[Request] = []
        for vector in taken:
            waiting += self.start_receive(source, tag, raw_bytes(vector))
        return tuple(taken), Outgoing(waiting, list(taken))

    def swallow(self, source: int, tag: Tag, specs: Sequence[Spec]) -> Outgoing:
        """Receive vectors that nobody reads, so that their sender can go on."""
        return self.start_vectors(source, tag, specs, ())[1]

    def intact(self, specs: Sequence[Spec], vectors: Vectors) -> bool:
        """Whether vectors that have been received are what was sent, as far as checksums say."""
        pairs = zip(specs, vectors, strict=True)
        return all(spec.crc is None or spec.crc == _crc(vector) for spec, vector in pairs)

    def _sealed(self, text: bytes, *, torn: bool) -> Bytes:
        if not self._digest:
            return np.frombuffer(text, dtype=np.uint8)
        whole = np.frombuffer(text + _seal(text), dtype=np.uint8).copy()
        whole[len(text) // 2] ^= torn
        return whole

    def _spec(self, tensor: Tensor) -> Spec:
        spec = spec_of(tensor)
        return spec._replace(crc=_crc(tensor)) if self._digest else spec

    def raise_failure(self) -> None:
        """See whether a worker fails.

        Raises:
            WorkerFailed: one does.
        """
        if (found := self.probe(None, Tag.FAILURE)) is not None:
            raise WorkerFailed(self.cause(*found))

    def cause(self, source: int, size: int) -> str:
        """Receive what a worker that fails says."""
        try:
            return str(self.header(source, Tag.FAILURE, size)[0])
        except Damaged:
            return f"rank {source}: its last message arrived damaged"

    def discard(self, source: int, tag: Tag, size: int) -> None:
        """Receive a message, whatever it says."""
        self._comm.Recv(np.empty(size, dtype=np.uint8), source, tag)

    def start_send(self, dest: int, tag: int, piece: Bytes) -> list[Request]:
        """Start sending bytes in chunks."""
        return [self._comm.Isend(part, dest, tag) for part in self._parts(piece)]

    def start_receive(self, source: int, tag: int, piece: Bytes) -> list[Request]:
        """Start receiving bytes in chunks, in place."""
        return [self._comm.Irecv(part, source, tag) for part in self._parts(piece)]

    def _parts(self, piece: Bytes) -> list[Bytes]:
        return [piece[i : i + self._chunk] for i in range(0, len(piece), self._chunk)]


def spec_of(tensor: Tensor) -> Spec:
    """Dtype and shape, as they travel."""
    return Spec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _seal(text: bytes) -> bytes:
    return zlib.crc32(text).to_bytes(_SEAL, "big")


def _crc(tensor: Tensor) -> int:
    return zlib.crc32(raw_bytes(tensor).data)


def raw_bytes(tensor: Tensor) -> Bytes:
    """The elements of a host tensor as bytes, in the order of its indices.

    A contiguous tensor gives its own memory, any other a copy.

    Raises:
        TypeError: the tensor is not dense, or not on the host.
    """
    odd = tensor.is_quantized or tensor.layout != torch.strided
    if odd or tensor.device.type != "cpu":
        raise TypeError(
            f"the wire carries dense host tensors, not {tensor.layout} on {tensor.device}"
        )
    if not tensor.numel():
        return np.empty(0, dtype=np.uint8)
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    flat = dense.as_strided((dense.numel(),), (1,))  # a dimension of size 1 has any stride
    return flat.view(torch.uint8).numpy()
