"""The one seam: everything that a scheme knows of the outside.

A crew is the live workers, whatever they are: MPI ranks (``crew/mpi.py``) or a virtual cluster in
this process (``crew/sim.py``). The contract, tested over both by ``tests/crew/test_contract.py``:

- ``publish`` lends vectors to the crew under a version number; a task names the version it wants,
  and the crew sends the vectors along when the worker does not hold that version. ``retire``
  returns once the vectors are the caller's again: parameters may only change between
  ``retire(version)`` and the next ``publish``.
- ``submit`` does not block. ``collect`` returns the next event, whichever worker it comes from.
  Replies of one worker come in the order of its tasks. A worker is idle when ``collect`` has
  returned the replies to all tasks submitted to it.
- ``gather``, ``reduce`` and ``each`` deal tasks to the workers in contiguous blocks (``deal``).
  Replies to earlier tasks that arrive meanwhile are kept for ``collect``, their workers are not idle
  before, and ``idle`` keeps its order: an evaluation in the middle of an asynchronous run leaves
  arrival order and staleness as they are.
- ``reduce`` sums vectors in task order, never in arrival order, so the bits do not depend on
  timing.
- ``together`` has all workers, idle before, perform rounds among themselves; afterwards each holds
  the version that it returns.
- A worker may be lost, at any time; it is none of ``workers`` from then on. What it was doing for
  ``gather``, ``reduce`` or ``each`` is dealt to those that are left, who do the rounds of a
  ``together`` again from its version; what was submitted to it comes back from ``collect`` as
  ``Lost``. Replies that have arrived count. Where nobody is left, all of these raise
  ``WorkerLost``. Only crews that say so below can lose a worker and go on.
- A reply with a gradient, or of a shard, for ``gather``, ``reduce`` or ``each`` that is not finite does
  not count before a second worker has said the same, if there is one; a worker whom the second contradicts is
  among the ``disproved``.
- ``evict`` makes a worker a lost one. A crew with patience does so itself to one that does not answer;
  whatever comes from it afterwards is refused. ``fates`` says why each lost worker is lost.
- ``Reply.result.vectors`` are borrowed until the next call that takes in replies.
- ``close`` takes in every owed reply before it stops the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from psopt.data.plan import BatchPlan, Ticket
from psopt.data.shards import Cut, Shard, part_of
from psopt.replica.batch_tasks import (
    Buffers,
    HandOver,
    LocalMethod,
    LocalSolve,
    Probe,
    ShardGradient,
    Slices,
)
from psopt.replica.tasks import (
    DAMAGED_TASK,
    GONE_BACK,
    Evaluate,
    Fetch,
    Gradient,
    PeerGone,
    Peers,
    Reply,
    Result,
    Rounds,
    Span,
    Tally,
    Task,
    Vectors,
    deal,
    needs_vectors,
    sum_in_order,
)

__all__ = [
    "ALL_GONE",
    "DAMAGED_TASK",
    "GONE_BACK",
    "BatchPlan",
    "Buffers",
    "Crew",
    "Cut",
    "Evaluate",
    "Fetch",
    "Gradient",
    "HandOver",
    "LocalMethod",
    "LocalSolve",
    "Lost",
    "Observer",
    "PeerGone",
    "Peers",
    "Probe",
    "Reply",
    "Result",
    "Rounds",
    "Shard",
    "ShardGradient",
    "Slices",
    "Span",
    "Tally",
    "Task",
    "Ticket",
    "Vectors",
    "WorkerFailed",
    "WorkerLost",
    "deal",
    "needs_vectors",
    "part_of",
    "sum_in_order",
]

Observer = Callable[[int, Span], None]
"""Called with a rank (0 coordinator, worker + 1) and a span of its time, on the crew's clock."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Worker ``worker`` is gone, with the tasks that it had not answered."""

    worker: int
    tasks: tuple[Task, ...]


ALL_GONE = "all workers are gone; resume from the last checkpoint, if there is one"
"""What ``WorkerLost`` says where nobody is left."""


class WorkerLost(RuntimeError):  # noqa: N818 - reads as what happened
    """A worker that the scheme cannot do without is gone."""


class WorkerFailed(RuntimeError):  # noqa: N818 - reads as what happened
    """A worker says that it fails, and why; it has printed its traceback. The job ends."""


class Crew(Protocol):
    """The live workers. See the module's docstring for the contract."""

    @property
    def workers(self) -> tuple[int, ...]:
        """Ids of the live workers, in order."""

    @property
    def fates(self) -> Mapping[int, str]:
        """Why each lost worker is lost, as in "worker 1 ..."."""

    @property
    def late(self) -> int:
        """Replies that were refused: their worker was lost, or had given them already."""

    def disproved(self) -> Sequence[int]:
        """Workers whose reply was not finite where another's was, since the last call."""

    def idle(self) -> Sequence[int]:
        """Live workers that owe ``collect`` no reply, in the order in which they became free."""

    def now(self) -> float:
        """Seconds since the crew opened: wall clock, or the virtual one."""

    def publish(self, version: int, vectors: Vectors, structure: Any = None) -> None:
        """Lend ``vectors`` as ``version``; ``structure`` describes optimizer tensors at their end."""

    def retire(self, version: int) -> None:
        """Take the vectors of ``version`` back; returns when no worker still reads them."""

    def evict(self, worker: int, why: str) -> None:
        """Lose ``worker``.

        Raises:
            WorkerLost: the job does not go on without a worker.
        """

    def submit(self, worker: int, task: Task) -> None:
        """Give ``task`` to ``worker``, behind its other tasks."""

    def collect(self) -> Reply | Lost:
        """The next event. Raises RuntimeError when no task is open."""

    def each(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Reply]]:
        """Position of a task and its reply, as they arrive; vectors are borrowed until the next."""

    def gather(self, tasks: Sequence[Task]) -> list[Reply]:
        """Replies to ``tasks``, in task order, without their vectors."""

    def reduce(self, tasks: Sequence[Task], out: Vectors) -> list[Reply]:
        """As ``gather``; the vectors are summed in task order into ``out``, and only there."""

    def together(self, task: Rounds) -> tuple[int, list[tuple[Tally, ...]]]:
        """Version after the rounds, and the tallies of each round in slot order.

        Raises:
            RuntimeError: a worker is not idle.
        """

    def fetch(self, version: int) -> Result:
        """The state that a worker holds after ``together`` (all workers hold the same)."""

    def close(self) -> None:
        """Take in owed replies, stop the workers."""
