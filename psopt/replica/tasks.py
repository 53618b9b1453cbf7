"""The words that coordinator and workers exchange: tasks (what to do) and replies (what came of it).

A worker is a server of task verbs. A task is small, immutable and names everything that it depends
on: the version of the parameters and the tickets (which rows). So any worker can do any task, and a
lost one can be given to another. Vectors (parameters, gradients) never sit inside a task: the crew
carries them beside it, flat and typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from psopt.data.plan import Ticket
from psopt.replica.batch_tasks import BatchTask, HandOver

Vectors = tuple[Tensor, ...]
"""Flat, contiguous host tensors: parameters or gradient first, then one vector a group of buffers."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """Gradient of the mean loss over the ticket's rows, at the named version.

    Attributes:
        weight: the worker multiplies its floating vectors by it before sending (1 / slots in a
            mean), so that an ordered sum is all that is left to do.
        measured: say the Euclidean norm of the gradient, before it is multiplied.
    """

    version: int
    ticket: Ticket
    weight: float = 1.0
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Rounds:
    """Synchronous rounds that the workers run among themselves, each ending in one optimizer step on every worker.

    Attributes:
        rounds: the tickets of each round, in slot order. Slots are dealt to the workers in
            contiguous blocks.
        install: take over the published vectors, optimizer state included, even when the version
            is held (first rounds after a start).
        skip_bad: a round whose update is not finite is left out; otherwise the rounds end there.
        members: the workers that take part; filled in by the crew.
        meeting: counts the calls of peers together; filled in by the crew.
        keep: be able to go back to ``version``, should a member die; filled in by the crew.
    """

    version: int
    rounds: tuple[tuple[Ticket, ...], ...]
    install: bool = False
    skip_bad: bool = False
    members: tuple[int, ...] = ()
    meeting: int = 0
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send home parameters, buffers and optimizer state of the replica, all at its version."""

    version: int


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Loss and accuracy over chunks ``first`` to ``last - 1`` of the test split, at the named version."""

    version: int
    first: int
    last: int


Task = Gradient | Rounds | Fetch | Evaluate | HandOver | BatchTask


def needs_vectors(task: Task, held: int | None) -> bool:
    """True when a worker that holds version ``held`` must be sent the vectors of the task's version."""
    return held != task.version or (isinstance(task, Rounds) and task.install)


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over some samples: loss (float64), correct answers (None for regression), samples.

    Attributes:
        finite: False when the gradient that goes with the sums, or a statistic, is not finite.
        refused: the round that they belong to took no step.
        norm: Euclidean norm of the gradient, where it was asked for.
    """

    loss: float
    correct: int | None
    count: int
    finite: bool = True
    refused: bool = False
    norm: float | None = None


Span = tuple[str, float, float]
"""Kind (compute, wait, send, receive), start, end; seconds on the coordinator's clock once received."""


@dataclass(frozen=True, slots=True)
class Result:
    """What performing a task gave.

    Attributes:
        tallies: one a ticket (Gradient, Rounds: round by round, in slot order) or a chunk
            (Evaluate).
        vectors: the gradient and the buffers (Gradient), the whole state (Fetch), else empty.
        version: the version that the replica holds afterwards; ``GONE_BACK`` where a peer was lost,
            ``DAMAGED_TASK`` where nothing was done.
        structure: of the optimizer tensors at the end of ``vectors`` (Fetch).
        largest: absolute value of an entry that a slice adds to the mean (Slices).
        seconds: that the worker needed; the virtual ones on a virtual cluster.
    """

    tallies: tuple[Tally, ...] = ()
    vectors: Vectors = ()
    version: int = 0
    structure: Any = None
    largest: float = 0.0
    seconds: float = 0.0


GONE_BACK = -2
"""Version in the result of ``Rounds`` that broke off: the replica is back at the task's version."""

DAMAGED_TASK = -3
"""Version in the result of a task that arrived damaged, and was not performed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A worker's result, as the crew hands it to the coordinator.

    ``result.vectors`` are borrowed: they stay valid until the next call of the crew that takes in
    replies.
    """

    worker: int
    task: Task
    result: Result
    spans: tuple[Span, ...] = field(default=())

    def bare(self) -> Reply:
        """The same without its vectors."""
        return replace(self, result=replace(self.result, vectors=()))


class PeerGone(RuntimeError):  # noqa: N818 - reads as what happened
    """A worker that takes part in rounds has died, or rank 0 has."""


class Peers(Protocol):
    """The workers as one of them sees them, for rounds that they run among themselves.

    ``sum_rows`` and ``finish`` raise ``PeerGone``.
    """

    @property
    def index(self) -> int:
        """Position of this worker among the live ones, from 0."""

    @property
    def size(self) -> int:
        """Number of live workers."""

    def convene(self, members: Sequence[int], meeting: int) -> None:
        """From now on the peers are ``members``; nothing of an earlier meeting arrives any more."""

    def sum_rows(self, rows: Sequence[Tensor], counts: Sequence[int], out: Tensor) -> None:
        """Sum all workers' rows into ``out``, in worker order, on every worker.

        Args:
            rows: this worker's vectors, shape (n,) each; they must not change before ``finish``.
            counts: number of rows that each worker brings.
            out: result (n,), bitwise the same on every worker and equal to adding the rows one
            after another.
        """

    def finish(self) -> None:
        """Returns when the rows of earlier sums may change."""


class Alone:
    """A worker without peers; also all workers of a virtual cluster in one process."""

    index = 0
    size = 1

    def convene(self, members: Sequence[int], meeting: int) -> None:
        """Nobody else is there."""

    def sum_rows(self, rows: Sequence[Tensor], counts: Sequence[int], out: Tensor) -> None:
        """Sum the rows in order."""
        sum_in_order(rows, out)

    def finish(self) -> None:
        """Rows are read at once."""


def sum_in_order(rows: Sequence[Tensor], out: Tensor) -> None:
    """``out = rows[0] + rows[1] + ...`` from left to right.

    Plain additions only: scaled ones may or may not be fused, which would make the last bit depend
    on alignment. Counters (integer vectors) are not summed: the furthest one counts, once for all
    workers.
    """
    if len(rows) == 1 and out is not rows[0]:
        out.copy_(rows[0])
    total = rows[0]
    for row in rows[1:]:
        total = (torch.add if out.is_floating_point() else torch.maximum)(total, row, out=out)


def deal(items: int, workers: int) -> list[range]:
    """Contiguous blocks of ``range(items)`` for each worker, sizes differing by at most one."""
    bounds = [items * w // workers for w in range(workers + 1)]
    return [range(first, end) for first, end in pairwise(bounds)]
