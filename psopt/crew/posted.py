"""What both crews are: a roster with a post, whoever does the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from psopt.crew.base import Task, Vectors
from psopt.crew.doubt import Doubts
from psopt.crew.roster import Roster


class Sender(Protocol):
    """The part of a post that needs no waiting."""

    roster: Roster
    published: dict[int, tuple[Vectors, Any]]

    def send(self, worker: int, task: Task, serial: int | None = None) -> int:
        """Give ``task`` to ``worker``; its serial number, a new one if none is given."""


class Watch(Protocol):
    """Who decides that a worker is gone.

    Attributes:
        late: replies that were refused: their worker was gone, or had given them already.
    """

    late: int

    def evict(self, worker: int, why: str) -> None:
        """Lose ``worker``."""


class Posted:
    """The crew's methods that do not depend on how replies come.

    Args:
        sender: gives out tasks.
        watch: over the workers.
    """

    def __init__(self, sender: Sender, watch: Watch) -> None:
        self._sender, self._watch, self._roster = sender, watch, sender.roster
        self._doubts = Doubts(self._roster, sender.send)

    @property
    def workers(self) -> tuple[int, ...]:
        """Ids of the live workers, in order."""
        return self._roster.workers

    @property
    def fates(self) -> Mapping[int, str]:
        """Why each worker that is gone is gone."""
        return self._roster.fates

    @property
    def late(self) -> int:
        """Replies that were refused: their worker was gone, or had given them already."""
        return self._watch.late

    def disproved(self) -> Sequence[int]:
        """Workers whose reply was not finite where another's was, since the last call."""
        return self._doubts.take()

    def idle(self) -> Sequence[int]:
        """Workers that owe no reply, longest free first."""
        return tuple(self._roster.idle)

    def publish(self, version: int, vectors: Vectors, structure: Any = None) -> None:
        """Lend ``vectors`` as ``version``."""
        self._sender.published[version] = (vectors, structure)

    def evict(self, worker: int, why: str) -> None:
        """Go on without ``worker``, which may still be heard of."""
        self._watch.evict(worker, why)

    def submit(self, worker: int, task: Task) -> None:
        """Give ``task`` out; ``collect`` hands its reply over."""
        self._sender.send(worker, task)
        self._roster.submit(worker)
