"""A virtual cluster in this process: real gradients, virtual time.

Every task is performed here on one replica, at the moment it is given out; its reply is delivered at
the virtual time at which a worker with the drawn computing time, behind the modelled network, would
have delivered it. So the parameters follow exactly the course that they would take on such a cluster,
and 4,096 workers need the memory of their open replies only. Workers may die and the run goes on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from psopt.crew.base import (
    Evaluate,
    Fetch,
    Lost,
    Observer,
    Reply,
    Result,
    Rounds,
    Tally,
    Task,
    Vectors,
    needs_vectors,
    sum_in_order,
)
from psopt.crew.roster import Roster
from psopt.crew.virtual import Network, nbytes
from psopt.replica.memory import Memory
from psopt.replica.replica import Replica
from psopt.replica.tasks import Alone

Compute = Callable[[int, int], float]


@dataclass(order=True, slots=True)
class _Event:
    """A worker has finished a task, or is found dead (no ``reply``), at virtual time ``at``."""

    at: float
    serial: int
    worker: int = field(compare=False)
    reply: Reply | None = field(compare=False)


class SimCrew:
    """Virtual workers that share ``replica``.

    Args:
        replica: performs all tasks.
        workers: how many workers to simulate.
        compute: seconds that worker w takes for a gradient over n samples, ``compute(w, n)``.
        network: when messages arrive.
        server_cost: seconds that the server needs for one reply.
        observer: is told where each rank's virtual time goes.
        deaths: virtual times at which workers die.
    """

    def __init__(
        self,
        replica: Replica,
        workers: int,
        compute: Compute,
        network: Network,
        *,
        server_cost: float = 0.0,
        observer: Observer = lambda rank, span: None,
        deaths: Mapping[int, float] | None = None,
    ) -> None:
        self._replica, self._compute, self._network = replica, compute, network
        self._server_cost, self._observe, self._deaths = server_cost, observer, deaths or {}
        self._now = 0.0
        self._published: dict[int, tuple[Vectors, Any]] = {}
        self._roster = Roster(workers)
        self._free = dict.fromkeys(range(workers), 0.0)
        self._events: list[_Event] = []
        self._serial = 0
        self._memories: dict[int, Memory] = {}

    @property
    def workers(self) -> tuple[int, ...]:
        """Ids of the live workers, in order."""
        return self._roster.workers

    def idle(self) -> Sequence[int]:
        """Workers that owe no reply, longest free first."""
        return tuple(self._roster.idle)

    def now(self) -> float:
        """Virtual seconds."""
        return self._now

    def publish(self, version: int, vectors: Vectors, structure: Any = None) -> None:
        """Lend ``vectors`` as ``version``."""
        self._published[version] = (vectors, structure)

    def retire(self, version: int) -> None:
        """Take ``version`` back: tasks have read it when they were given out."""
        self._published.pop(version, None)

    def submit(self, worker: int, task: Task) -> None:
        """Perform ``task`` now; ``collect`` hands its reply over when it is due."""
        self._give(worker, task)
        self._roster.submit(worker)

    def collect(self) -> Reply | Lost:
        """The event that is next in virtual time."""
        roster = self._roster
        while not roster.kept:
            if roster.all_idle:
                raise RuntimeError("collect: no task is open, so no reply can come")
            event = self._next()
            if event.reply is not None:
                roster.kept.append(event.reply)
            else:
                roster.deal_again({}, self._give)
        return roster.collect()

    def each(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Reply]]:
        """Position of a task and its reply, as they arrive."""
        wanted = self._roster.deal_out(list(enumerate(tasks)), self._give)
        while wanted:
            event = self._next()
            if event.reply is None:
                self._roster.deal_again(wanted, self._give)
            elif event.serial in wanted:
                yield wanted.pop(event.serial), event.reply
            else:
                self._roster.kept.append(event.reply)

    def gather(self, tasks: Sequence[Task]) -> list[Reply]:
        """Replies in task order, without vectors. Evaluation is measurement: it takes no virtual time."""
        if all(isinstance(task, Evaluate) for task in tasks):
            return [
                Reply(worker, tasks[position], self._perform(worker, tasks[position]))
                for worker, block in self._roster.blocks(len(tasks))
                for position in block
            ]
        return [reply.bare() for reply in self._in_order(tasks)]

    def reduce(self, tasks: Sequence[Task], out: Vectors) -> list[Reply]:
        """Sum the replies' vectors in task order into ``out``."""
        replies = self._in_order(tasks)
        for position, total in enumerate(out):
            sum_in_order([reply.result.vectors[position] for reply in replies], total)
        return [reply.bare() for reply in replies]

    def together(self, task: Rounds) -> tuple[int, list[tuple[Tally, ...]]]:
        """All slots of every round on the one replica: the sums are those of workers with one slot each."""
        if not self._roster.all_idle:
            raise RuntimeError("together: workers have open tasks; collect their replies first")
        sent = self._now
        for worker in self.workers:
            if needs_vectors(task, self._roster.held.get(worker)):
                carried = self._published[task.version][0]
                self._now = self._network.to_worker(sent, nbytes(carried))
        result = self._perform(self.workers[0], task)
        tallies, rounds = iter(result.tallies), []
        for tickets in task.rounds:
            if sums := tuple(islice(tallies, len(tickets))):
                rounds.append(sums)
                self._pass_round([tally.count for tally in sums])
        self._roster.held = dict.fromkeys(self._roster.open, result.version)
        return result.version, rounds

    def fetch(self, version: int) -> Result:
        """State of the replica, after the time that its vectors need to the server."""
        result = self._perform(self.workers[0], Fetch(version))
        self._now = self._network.to_server(self._now, nbytes(result.vectors))
        return result

    def close(self) -> None:
        """Forget what is owed: nobody waits for it. Who has nothing to do has waited until now."""
        for worker, free in self._free.items():
            if not self._roster.open[worker]:
                self._observe(worker + 1, ("wait", free, max(free, self._now)))
        self._events.clear()
        for tasks in self._roster.open.values():
            tasks.clear()

    def _perform(self, worker: int, task: Task) -> Result:
        """Perform ``task`` at its version; the result's vectors are the caller's."""
        replica = self._replica
        memory = self._memories.setdefault(worker, Memory())
        if needs_vectors(task, replica.version):
            vectors, structure = self._published[task.version]
            replica.load(task.version, vectors, structure)
        result = replica.perform(task, Alone(), memory)
        return replace(result, vectors=tuple(vector.clone() for vector in result.vectors))

    def _give(self, worker: int, task: Task) -> int:
        """Perform ``task`` now and schedule its reply; the serial number of the event."""
        sent = needs_vectors(task, self._roster.held.get(worker))
        carried: Vectors = self._published[task.version][0] if sent else ()
        self._roster.held[worker] = task.version
        free = self._free[worker]
        start = max(self._network.to_worker(self._now, nbytes(carried)), free)
        result = self._perform(worker, task)
        seconds = self._compute_seconds(worker, result)
        result, end = replace(result, seconds=seconds), start + seconds
        death = self._deaths.get(worker, float("inf"))
        reply = Reply(worker, task, result) if end < death else None
        self._observe(worker + 1, ("wait", free, max(free, min(start, death))))
        self._observe(worker + 1, ("compute", min(start, death), min(end, death)))
        self._free[worker] = end
        self._serial += 1
        at = end if reply else max(death, self._now)
        heapq.heappush(self._events, _Event(at, self._serial, worker, reply))
        self._roster.open[worker].append((self._serial, task))
        return self._serial

    def _compute_seconds(self, worker: int, result: Result) -> float:
        samples = sum(tally.count for tally in result.tallies)
        return self._compute(worker, samples) if samples else 0.0

    def _next(self) -> _Event:
        """Go on to the next event."""
        event = heapq.heappop(self._events)
        worker = event.worker
        if event.reply is None:
            self._now = max(self._now, event.at)
            self._bury([worker])
            return event
        start, size = self._now, nbytes(event.reply.result.vectors)
        arrival = self._network.to_server(event.at, size)
        self._observe(worker + 1, ("send", event.at, arrival))
        self._observe(0, ("wait", start, max(start, arrival)))
        self._now = max(self._now, arrival) + self._server_cost
        self._observe(0, ("update", self._now - self._server_cost, self._now))
        self._roster.open[worker].popleft()
        self._free[worker] = max(self._free[worker], arrival)
        return event

    def _bury(self, dead: Collection[int]) -> None:
        """Forget dead workers; what they had is in the roster's ``losses`` then."""
        self._roster.bury(dead)
        for worker in dead:
            del self._free[worker]
            self._memories.pop(worker, None)
        self._events = [event for event in self._events if event.worker not in dead]
        heapq.heapify(self._events)

    def _in_order(self, tasks: Sequence[Task]) -> list[Reply]:
        """Replies in task order."""
        arrived = dict(self.each(tasks))
        return [arrived[position] for position in range(len(tasks))]

    def _pass_round(self, counts: Sequence[int]) -> None:
        """Virtual time of one round: the slowest worker's slots, then the allreduce."""
        start = self._now
        seconds = [
            sum((self._compute(worker, counts[slot]) for slot in block), 0.0)
            for worker, block in self._roster.blocks(len(counts))
        ]
        slowest = start + max(seconds)
        size = nbytes(self._replica.model.vectors)
        self._now = slowest + self._network.allreduce(len(self.workers), size)
        self._free.update(dict.fromkeys(self.workers, self._now))
        for worker, own in zip(self.workers, seconds, strict=True):
            self._observe(worker + 1, ("compute", start, start + own))
            self._observe(worker + 1, ("wait", start + own, slowest))
            self._observe(worker + 1, ("send", slowest, self._now))
        self._observe(0, ("wait", start, self._now))
        dead = [w for w in self.workers if self._deaths.get(w, float("inf")) <= self._now]
        self._bury(dead)
        if dead:  # those that are left do the round again
            self._pass_round(counts)
