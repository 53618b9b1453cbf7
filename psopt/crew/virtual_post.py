"""The post of a virtual cluster: tasks are performed at once, replies come at their virtual time.

The counterpart of ``psopt.crew.post``, with the same roster and the same patience. What goes wrong on the
way, and to the workers, is drawn by ``psopt.crew.faults``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from psopt.crew.base import Observer, Reply, Result, Task, Vectors, needs_vectors
from psopt.crew.faults import Faults
from psopt.crew.patience import Terms
from psopt.crew.roster import DAMAGED, DIED, Roster
from psopt.crew.virtual import Network, nbytes
from psopt.replica.memory import Memory
from psopt.replica.replica import Replica
from psopt.replica.tasks import Alone

Compute = Callable[[int, int], float]


@dataclass(order=True, slots=True)
class _Event:
    """A worker has sent a reply, or is found dead (no ``reply``), at virtual time ``at``."""

    at: float
    order: int  # in which they were sent: a task that is given again keeps its serial number
    serial: int = field(compare=False)
    worker: int = field(compare=False)
    reply: Reply | None = field(compare=False)
    damaged: bool = field(compare=False, default=False)


class VirtualPost:
    """Between the coordinator and virtual workers that share ``replica``.

    Args:
        replica: performs all tasks.
        workers: how many.
        compute: seconds that worker w takes for a gradient over n samples, ``compute(w, n)``.
        network: when messages arrive.
        server_cost: seconds that the server needs for one reply.
        observer: is told where each rank's virtual time goes.
        faults: what goes wrong.
        terms: of losses.

    Attributes:
        now: virtual seconds.
        roster: who is there, and has what.
        published: vectors, and structure of those at their end, by version.
        late: replies that were refused, because their worker was gone or had given them already.
    """

    def __init__(
        self,
        replica: Replica,
        workers: int,
        compute: Compute,
        network: Network,
        server_cost: float,
        observer: Observer,
        faults: Faults,
        terms: Terms,
    ) -> None:
        self._replica, self._compute, self._network = replica, compute, network
        self._server_cost, self._observe, self._faults = server_cost, observer, faults
        self.now, self.late = 0.0, 0
        self.published: dict[int, tuple[Vectors, Any]] = {}
        self.roster = Roster(workers, terms)
        self._free = dict.fromkeys(range(workers), 0.0)
        self._sent: dict[int, float] = {}  # when a worker's last reply left
        self._events: list[_Event] = []
        self._serial = self._sendings = 0
        self._memories: dict[int, Memory] = {}

    def close(self) -> None:
        """Forget what is owed: nobody waits for it. Who has nothing to do has waited until now."""
        for worker, free in self._free.items():
            if not self.roster.open[worker]:
                self._observe(worker + 1, ("wait", free, max(free, self.now)))
        self._events.clear()
        for tasks in self.roster.open.values():
            tasks.clear()

    def perform(self, worker: int, task: Task) -> Result:
        """Perform ``task`` at its version; the result's vectors are the caller's."""
        replica = self._replica
        memory = self._memories.setdefault(worker, Memory())
        if needs_vectors(task, replica.version):
            vectors, structure = self.published[task.version]
            replica.load(task.version, vectors, structure)
        replica.poisoned = self._faults.poisons(worker, task)
        result = replica.perform(task, Alone(), memory)
        return replace(result, vectors=tuple(vector.clone() for vector in result.vectors))

    def send(self, worker: int, task: Task, serial: int | None = None) -> int:
        """Perform ``task`` now and schedule its reply.

        Returns:
            The serial number of the event: ``serial``, which it had before, or a new one.
        """
        sent = needs_vectors(task, self.roster.held.get(worker))
        carried: Vectors = self.published[task.version][0] if sent else ()
        self.roster.held[worker] = task.version
        free = self._free[worker]
        start = max(self._network.to_worker(self.now, nbytes(carried)), free)
        result = self.perform(worker, task)
        seconds = self._compute_seconds(worker, result)
        result = replace(result, seconds=seconds)
        start, end = self._faults.through(worker, start, seconds)
        death = self._faults.death(worker)
        self._observe(worker + 1, ("wait", free, max(free, min(start, death))))
        self._observe(worker + 1, ("compute", min(start, death), min(end, death)))
        self._free[worker] = end
        if serial is None:
            serial = self._serial = self._serial + 1
        else:
            self._forget(serial)
        if end < death:
            self._send_home(worker, end, serial, Reply(worker, task, result))
        else:
            self._sendings += 1
            event = _Event(max(death, self.now), self._sendings, serial, worker, None)
            heapq.heappush(self._events, event)
        self.roster.given(worker, serial, task, self.now)
        return serial

    def _forget(self, serial: int) -> None:
        """A reply that has come does not come a second time."""
        self._events = [event for event in self._events if event.serial != serial]
        heapq.heapify(self._events)

    def _send_home(self, worker: int, end: float, serial: int, reply: Reply) -> None:
        """Schedule the arrival of a reply; those of one worker do not overtake each other."""
        fate = self._faults.message(worker)
        at = self._sent[worker] = max(end + fate.delay, self._sent.get(worker, 0.0))
        arriving = None if fate.deadly else reply
        self._sendings += 1
        event = _Event(at, self._sendings, serial, worker, arriving, fate.damaged)
        heapq.heappush(self._events, event)
        if fate.again is not None:
            heapq.heappush(self._events, replace(event, at=at + fate.again))

    def _compute_seconds(self, worker: int, result: Result) -> float:
        samples = sum(tally.count for tally in result.tallies)
        return self._compute(worker, samples) if samples else 0.0

    def receive(self) -> tuple[int, Reply] | None:
        """Go on to the next reply: its serial number, and it; None: workers are gone instead."""
        roster = self.roster
        while not roster.losses:
            due = roster.watches.next()
            if not self._events and due == float("inf"):
                raise RuntimeError("no worker has anything to answer")
            if not self._events or due <= self._events[0].at:
                self.now = max(self.now, due)
                for worker in roster.watches.overdue(self.now):
                    self.evict(worker, roster.watches.why(worker, self.now))
                continue
            event = heapq.heappop(self._events)
            worker, open_tasks = event.worker, roster.open.get(event.worker)
            if event.reply is None:
                self.now = max(self.now, event.at)
                self.evict(worker, DIED)
            elif not open_tasks or open_tasks[0][0] != event.serial:
                self.late += 1  # from a worker that is gone, or for the second time
            elif event.damaged:
                self.now = max(self.now, event.at)
                self.evict(worker, DAMAGED)
            else:
                return event.serial, self._arrive(event, event.reply)
        return None

    def _arrive(self, event: _Event, reply: Reply) -> Reply:
        """The server takes in a reply."""
        worker, start, size = event.worker, self.now, nbytes(reply.result.vectors)
        arrival = self._network.to_server(event.at, size)
        self._observe(worker + 1, ("send", event.at, arrival))
        self._observe(0, ("wait", start, max(start, arrival)))
        self.now = max(self.now, arrival) + self._server_cost
        self._observe(0, ("update", self.now - self._server_cost, self.now))
        self.roster.answered(worker, self.now)
        self._free[worker] = max(self._free[worker], arrival)
        return reply

    def evict(self, worker: int, why: str) -> None:
        """Forget a worker; what it had is in the roster's ``losses`` then."""
        if self.roster.bury([worker], why):
            del self._free[worker]
            self._memories.pop(worker, None)

    def pass_round(self, counts: Sequence[int]) -> None:
        """Virtual time of one round: the slowest worker's slots, then the allreduce."""
        start = self.now
        seconds, overdue = [], {}
        for worker, block in self.roster.blocks(len(counts)):
            own = sum((self._compute(worker, counts[slot]) for slot in block), 0.0)
            seconds.append(self._faults.through(worker, start, own)[1] - start)
            if seconds[-1] > (most := self.roster.watches.most(own)):
                overdue[worker] = most
        if overdue:
            self.now = start + max(overdue.values())
            for worker, most in overdue.items():
                self.evict(worker, f"has not answered for {most:.3g} s (Rounds task)")
            self.pass_round(counts)  # those that are left do it again
            return
        slowest = start + max(seconds)
        size = nbytes(self._replica.model.vectors)
        self.now = slowest + self._network.allreduce(len(self.roster.workers), size)
        self._free.update(dict.fromkeys(self.roster.workers, self.now))
        for worker, own in zip(self.roster.workers, seconds, strict=True):
            self._observe(worker + 1, ("compute", start, start + own))
            self._observe(worker + 1, ("wait", start + own, slowest))
            self._observe(worker + 1, ("send", slowest, self.now))
        self._observe(0, ("wait", start, self.now))
        dead = [w for w in self.roster.workers if self._faults.death(w) <= self.now]
        for worker in dead:
            self.evict(worker, DIED)
        if dead:  # likewise
            self.pass_round(counts)
