"""A virtual cluster in this process: real gradients, virtual time.

Every task is performed here on one replica, at the moment it is given out; its reply is delivered at
the virtual time at which a worker with the drawn computing time, behind the modelled network, would
have delivered it. So the parameters follow exactly the course that they would take on such a cluster,
and 4,096 workers need the memory of their open replies only. Whatever ``psopt.crew.faults`` can do to
workers and their messages happens on that clock, and the run goes on with those that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

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
from psopt.crew.faults import NONE, Faults
from psopt.crew.patience import Terms
from psopt.crew.posted import Posted
from psopt.crew.virtual import Network, nbytes
from psopt.crew.virtual_post import Compute, VirtualPost
from psopt.replica.replica import Replica

GOES_ON = Terms(goes_on=True)


class SimCrew(Posted):
    """Virtual workers that share ``replica``.

    Args:
        replica: performs all tasks.
        workers: how many workers to simulate.
        compute: seconds that worker w takes for a gradient over n samples, ``compute(w, n)``.
        network: when messages arrive.
        server_cost: seconds that the server needs for one reply.
        observer: is told where each rank's virtual time goes.
        faults: what goes wrong.
        terms: of losses, after which it always goes on.
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
        faults: Faults = NONE,
        terms: Terms = GOES_ON,
    ) -> None:
        self._post = VirtualPost(
            replica, workers, compute, network, server_cost, observer, faults, terms
        )
        super().__init__(self._post, self._post)
        self._network = network

    def now(self) -> float:
        """Virtual seconds."""
        return self._post.now

    def retire(self, version: int) -> None:
        """Take ``version`` back: tasks have read it when they were given out."""
        self._post.published.pop(version, None)

    def collect(self) -> Reply | Lost:
        """The event that is next in virtual time."""
        roster = self._roster
        while not roster.kept:
            if roster.all_idle and not roster.losses:
                raise RuntimeError("collect: no task is open, so no reply can come")
            if (event := self._post.receive()) is not None:
                roster.kept.append(event[1])
            else:
                roster.deal_again({}, self._post.send)
        return roster.collect()

    def each(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Reply]]:
        """Position of a task and its reply, as they arrive."""
        wanted = self._roster.deal_out(list(enumerate(tasks)), self._post.send)
        while wanted:
            if (event := self._post.receive()) is None:
                self._roster.deal_again(wanted, self._post.send)
                continue
            serial, _ = event
            if (reply := self._doubts.heard(*event)) is None:
                continue
            if serial in wanted:
                yield wanted.pop(serial), reply
            else:
                self._roster.kept.append(reply)

    def gather(self, tasks: Sequence[Task]) -> list[Reply]:
        """Replies in task order, without vectors. Evaluation is measurement: it takes no virtual time."""
        if all(isinstance(task, Evaluate) for task in tasks):
            return [
                Reply(worker, tasks[position], self._post.perform(worker, tasks[position]))
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
        sent = self._post.now
        for worker in self.workers:
            if needs_vectors(task, self._roster.held.get(worker)):
                carried = self._post.published[task.version][0]
                self._post.now = self._network.to_worker(sent, nbytes(carried))
        result = self._post.perform(self.workers[0], task)
        tallies, rounds = iter(result.tallies), []
        for tickets in task.rounds:
            if sums := tuple(islice(tallies, len(tickets))):
                rounds.append(sums)
                self._post.pass_round([tally.count for tally in sums])
        self._roster.held = dict.fromkeys(self._roster.open, result.version)
        return result.version, rounds

    def fetch(self, version: int) -> Result:
        """State of the replica, after the time that its vectors need to the server."""
        result = self._post.perform(self.workers[0], Fetch(version))
        self._post.now = self._network.to_server(self._post.now, nbytes(result.vectors))
        return result

    def close(self) -> None:
        """Forget what is owed: nobody waits for it."""
        self._post.close()

    def _in_order(self, tasks: Sequence[Task]) -> list[Reply]:
        """Replies in task order."""
        arrived = dict(self.each(tasks))
        return [arrived[position] for position in range(len(tasks))]
