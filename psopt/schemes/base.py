"""What a scheme is: the coordinator's policy, as hyper-parameters, a state, and one step.

A scheme is a frozen dataclass of hyper-parameters and at the same time its own YAML section.
``init`` makes its state, another dataclass of plain values, which checkpoints keep as it is.
``step`` does one thing and reports the server's updates that came of it; evaluation, logging,
checkpoints and stopping are the loop's. A scheme sees the outside through its ``Context`` only, and
cannot tell real ranks from virtual ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from pydantic import ConfigDict
from torch import Tensor

from psopt.crew.base import BatchPlan, Buffers, Crew, Lost, Observer, Tally, Ticket, Vectors
from psopt.optim.inner import dot
from psopt.optim.tree import flatten_tree
from psopt.schemes.offences import Offences
from psopt.schemes.sides import Server, Tickets

SECTION = ConfigDict(extra="forbid", strict=True)
"""Pydantic's settings for a scheme's dataclass."""


_STATISTICS = 64

TRANSIENT = {"transient": True}
"""Metadata of a state's field that a checkpoint leaves out."""


@dataclass(frozen=True, slots=True)
class Update:
    """One step of the server, or an update that it refused.

    Attributes:
        version: the server's version afterwards.
        tally: over the samples that the update is made of.
        staleness: server version at the update minus the version of the gradient.
        weight: what the update was multiplied by.
        worker: whose gradient it was; None for a round of several.
        seconds: on the crew's clock.
        figures: more of this update for the metrics, by name.
        work: samples whose gradients it took; None: those of the tally.
    """

    version: int
    tally: Tally
    seconds: float
    staleness: int = 0
    weight: float = 1.0
    worker: int | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    work: int | None = None

    @property
    def samples(self) -> int:
        """Samples whose gradients the update took."""
        return self.tally.count if self.work is None else self.work


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a step may go before the loop has to look: at most ``steps`` updates, or ``samples`` samples."""

    steps: int
    samples: int


class Diverged(RuntimeError):  # noqa: N818 - reads as what happened
    """An update was not finite and the job may not go on without it, or no update is finite any more.

    Attributes:
        updates: made by the step that ended so, before the bad one.
    """

    updates: Sequence[Update] = ()


class Spoilt(Diverged):
    """All updates were finite, and yet the parameters or the test loss no longer are, or the objective is lost."""


@dataclass(slots=True)
class Context:
    """What a scheme works with.

    Attributes:
        crew: the workers.
        server: parameters and optimizer.
        tickets: which batch is next.
        skip_bad: leave out updates that are not finite, instead of ending the job.
        observe: is told how long the server's updates take.
        warn: says something loudly.
        l2: penalty of the objective, l2/2 |w|^2, which gradients over slices and shards leave out.
        begun: is told the objective at the initial parameters; whether that is as low as the job wants it.
        evict_after: go on without a worker from which so many bad updates came; None: keep it.
        explosion: a gradient is bad whose norm is so many times the usual; None: any finite one is good.
        offences: bad updates so far.
        refused_in_a_row: updates refused since the last one that was made.
    """

    crew: Crew
    server: Server
    tickets: Tickets
    skip_bad: bool = False
    observe: Observer = lambda rank, span: None
    warn: Callable[[str], None] = lambda message: None
    l2: float = 0.0
    begun: Callable[[float], bool] = lambda objective: False
    evict_after: int | None = None
    explosion: float | None = None
    offences: Offences = field(default_factory=Offences)
    refused_in_a_row: int = 0

    def publish(self) -> None:
        """Lend the server's vectors to the crew."""
        self.crew.publish(self.server.version, self.server.vectors)

    def penalty(self) -> float:
        """l2/2 |w|^2 at the server's parameters."""
        w = self.server.vectors[0]
        return self.l2 / 2 * dot(w, w) if self.l2 else 0.0

    def lend(self, **beside: Tensor) -> None:
        """Publish the server's vectors once more, with others beside them, as a new version."""
        self.crew.retire(self.server.version)
        self.server.place(self.server.vectors[0])
        structure, tensors = flatten_tree(beside)
        self.crew.publish(self.server.version, (*self.server.vectors, *tensors), structure)

    def place(self, parameters: Tensor, buffers: Vectors = ()) -> None:
        """Have the server and the crew go on from ``parameters`` (n,), as a new version.

        Args:
            parameters: they are copied.
            buffers: likewise; none: the server's stay.
        """
        self.crew.retire(self.server.version)
        self.server.place(parameters)
        if buffers:
            self.server.settle(buffers)
        self.publish()

    def apply(
        self, vectors: Vectors, *, epoch: int, weight: float = 1.0, rate: float = 1.0
    ) -> None:
        """Update the server between two publications."""
        self.crew.retire(self.server.version)
        start = self.crew.now()
        self.server.apply(vectors, epoch=epoch, weight=weight, rate=rate)
        self.observe(0, ("update", start, self.crew.now()))
        self.publish()
        self.refused_in_a_row = 0

    def settle_buffers(self) -> None:
        """Statistics (BatchNorm) that belong to the server's parameters, where the model has any."""
        if len(self.server.vectors) > 1:
            tickets = statistics_tickets(self.tickets.plan(0))
            self.crew.reduce([Buffers(self.server.version, tickets)], self.server.inbox[1:])
            self.crew.retire(self.server.version)
            self.server.settle(self.server.inbox[1:])
            self.publish()

    def refuse(self, tickets: Sequence[Ticket], culprits: Sequence[int]) -> None:
        """Account for an update that is bad.

        Args:
            tickets: the batches that it was made of.
            culprits: workers whose gradients or buffers were bad; none when only their sum is.

        Raises:
            Diverged: by policy, or because hardly anything but such updates came lately.
            WorkerLost: a worker sends too many, and the job does not go on without it.
        """
        self.refused_in_a_row += 1
        who = " and ".join(f"worker {w} (rank {w + 1})" for w in culprits) or "the sum over workers"
        part = "gradient" if len(self.server.vectors) == 1 else "gradient or buffers"
        bad = "not finite" if self.explosion is None else "not finite, or far larger than usual"
        what = f"{who}: {part} {bad} (server version {self.server.version})"
        for ticket in tickets:
            self.tickets.refused(ticket)
        counts = {worker: self.offences.blame(worker) for worker in culprits}
        if not self.skip_bad:
            raise Diverged(f"{what}; on_bad_update: skip would leave it out")
        if self.refused_in_a_row > max(10, 2 * len(self.crew.workers)):
            raise Diverged(f"{what}; the last {self.refused_in_a_row} updates were all refused")
        self.warn(f"{what}; the update is left out")
        for worker, count in counts.items():
            self._weigh(worker, count, "updates that were refused")

    def disprove(self, workers: Sequence[int]) -> None:
        """Account for results that are not finite where another worker's, which count instead, are.

        Raises:
            WorkerLost: a worker sends too many, and the job does not go on without it.
        """
        for worker in workers:
            who = f"worker {worker} (rank {worker + 1})"
            self.warn(f"{who}: its result is not finite; another worker's is, and counts")
            count = self.offences.blame(worker)
            self._weigh(worker, count, "results that another worker has disproved")

    def _weigh(self, worker: int, count: int, sent: str) -> None:
        """Whether a worker with so many offences is kept."""
        others = len(self.crew.workers) > 1 and worker in self.crew.workers
        if self.evict_after is not None and count >= self.evict_after and others:
            self.crew.evict(worker, f"has sent {count} {sent}")

    def give_back(self, lost: Lost) -> None:
        """Have the tickets of a lost worker issued again."""
        for task in lost.tasks:
            ticket = getattr(task, "ticket", None)
            if ticket is not None:
                self.tickets.give_back(ticket)


def statistics_tickets(plan: BatchPlan) -> tuple[Ticket, ...]:
    """The batches that the statistics of buffers are averaged over."""
    return tuple(Ticket(0, k) for k in range(min(len(plan), _STATISTICS)))


class Scheme(ABC):
    """A parallel optimisation method."""

    name: str
    needs_optimizer: ClassVar[bool] = True  # whether the server steps by the job's optimizer
    free: ClassVar[frozenset[str]] = frozenset()  # options that a resumed run may change

    @property
    def among_themselves(self) -> bool:
        """Whether workers exchange their gradients without the coordinator."""
        return False

    @property
    def measures_objective(self) -> bool:
        """Whether updates tell the objective over the whole training set."""
        return False

    def batch_sizes(self, plan: BatchPlan, workers: int | None) -> set[int]:
        """Sizes of the batches whose gradients are computed.

        Args:
            plan: of an epoch.
            workers: of a run that starts now; None: one goes on.
        """
        return {plan.count(0), plan.count(len(plan) - 1)}

    def export(self, state: Any) -> dict[str, Any]:
        """What a checkpoint keeps of ``state``: a tree of plain values and tensors."""
        kept = [each.name for each in fields(state) if not each.metadata.get("transient")]
        return {name: getattr(state, name) for name in kept}

    def restore(self, state: Any, tree: Mapping[str, Any]) -> None:
        """Bring ``state``, which is fresh, to where ``export`` gave ``tree``."""
        for name, value in tree.items():
            setattr(state, name, value)

    def check_saved(self, tree: Mapping[str, Any], parameters: Tensor) -> None:  # noqa: B027 - as home
        """Look whether a run can go on from ``tree``, a state of a model with such ``parameters`` (n,).

        Raises:
            ValueError: it cannot.
        """

    @abstractmethod
    def init(self, context: Context) -> Any:
        """Fresh state: a dataclass of plain values."""

    @abstractmethod
    def step(self, context: Context, state: Any, limit: Limit) -> Sequence[Update]:
        """Go on until at least one update is made or refused; empty when all tickets are used up."""

    def reason(self, state: Any) -> str:
        """Why ``step`` has nothing left to do."""
        return "epochs"

    def home(self, context: Context, state: Any) -> None:  # noqa: B027 - most have nothing to do
        """Make the server's parameters current, where the workers have gone on without it."""
