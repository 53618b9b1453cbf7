"""A job from its first start to its end: what came of it, and whether it is started again after a loss.

``cluster.on_loss: restart`` works with every MPI: when a rank has died and mpirun has therefore ended
the job, it goes on from its last checkpoint with the ranks that are left. What would only happen again
is no loss: an error on a rank, a run that diverged, a job that cannot start; nor is a user's signal.
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from psopt.config.cluster import ClusterConfig
from psopt.launch.flavour import find_mpirun, flavour_of, mpirun_argv, version_of
from psopt.launch.mpirun import Heard, Signals, start
from psopt.launch.survival import outlives_loss

Again = Callable[[Path, Sequence[int]], Sequence[str]]
"""Arguments of every rank that continue the run of a directory, after the loss of some ranks."""


def run_ranks(arguments: Sequence[str], ranks: int, cluster: ClusterConfig, again: Again) -> int:
    """Run ``psopt ARGUMENTS`` on ``ranks`` ranks, again after a loss where the job wants that.

    Args:
        arguments: of every rank.
        ranks: how many.
        cluster: what to do when a rank dies.
        again: arguments of a restart.

    Returns:
        The job's exit status.

    Raises:
        MpirunError: there is no mpirun, or it does not answer.
    """
    mpirun = find_mpirun()
    version = version_of(mpirun)
    tolerant = cluster.on_loss == "continue" and outlives_loss(mpirun, version)
    restarts, directory = 0, None
    with Signals().heeded() as signals:
        while True:
            argv = mpirun_argv(mpirun, flavour_of(version), ranks, tolerant=tolerant)
            status, heard = start([*argv, sys.executable, "-m", "psopt", *arguments], signals)
            directory = directory if heard.directory is None else Path(heard.directory)
            end = _End(status, heard, tuple(signals.received), directory)
            if cluster.on_loss != "restart" or directory is None or not end.is_loss:
                break
            if (problem := _why_not(cluster, ranks - end.workers, restarts)) is not None:
                _say(f"not restarted: {problem}")
                break
            ranks, restarts = ranks - end.workers, restarts + 1
            _say(f"lost: {end.lost}; restart {restarts} of {cluster.max_restarts}, {ranks} ranks")
            arguments = again(directory, end.ranks)
    for line in end.last_words():
        _say(line)
    return end.status


def _why_not(cluster: ClusterConfig, ranks: int, restarts: int) -> str | None:
    """Why a job is not started again on ``ranks`` ranks, if it is not."""
    if ranks - 1 < cluster.min_workers:
        return f"workers left: {ranks - 1}, cluster.min_workers is {cluster.min_workers}"
    if restarts >= cluster.max_restarts:
        return f"restarts so far: {restarts}, cluster.max_restarts is {cluster.max_restarts}"
    return None


@dataclass(frozen=True, slots=True)
class _End:
    """How an attempt ended.

    Attributes:
        of_mpirun: its status.
        heard: what went by.
        signals: that this process received and passed on.
        directory: of the run, where this attempt or one before has come as far.
    """

    of_mpirun: int
    heard: Heard
    signals: tuple[int, ...]
    directory: Path | None

    @property
    def outcome(self) -> str | None:
        """The run's status, where this attempt has recorded one."""
        from psopt.record import NotARun, RunDirectory  # slow to import, and ranks import this room

        if self.heard.directory is None:  # what is there now is an earlier attempt's
            return None
        with contextlib.suppress(NotARun):
            summary = RunDirectory.open(Path(self.heard.directory)).read_summary()
            return None if summary is None else summary["status"]
        return None

    @property
    def is_loss(self) -> bool:
        """Whether ranks have died, and nothing else ended the job.

        One that nobody has named has died together with its supervisor; it is counted as present,
        since it is not known whether it was a worker.
        """
        if self.signals or self.heard.failed or self.outcome not in (None, "failed"):
            return False
        met = self.heard.directory is not None
        vanished = met and self.of_mpirun != 0 and self.outcome is None
        return bool(self.heard.deaths) or vanished

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those who have died, in order."""
        return tuple(sorted({death.rank for death in self.heard.deaths}))

    @property
    def workers(self) -> int:
        """How many of them were workers; a coordinator is always found anew."""
        return sum(rank > 0 for rank in self.ranks)

    @property
    def lost(self) -> str:
        """Their names."""
        names = ["coordinator" if rank == 0 else f"worker {rank - 1}" for rank in self.ranks]
        return ", ".join(names) or "a rank and its supervisor"

    @property
    def status(self) -> int:
        """Of the job. The run's own record decides where there is one; mpirun's word says little."""
        from psopt.record import EXITS

        outcome = self.outcome
        if outcome == "completed":
            return EXITS[outcome]
        if self.signals:
            return 128 + self.signals[0]
        if self.is_loss and (killed := [d.signal for d in self.heard.deaths if d.signal]):
            return 128 + killed[0]
        if outcome is not None:
            return EXITS[outcome]
        began = self.heard.directory is not None
        if self.heard.failed or (began and self.of_mpirun < 128):  # MPICH: n for signal n
            return EXITS["failed"]
        return self.of_mpirun

    def last_words(self) -> Iterator[str]:
        """After a job that did not come to its end: what ended it, and how to go on."""
        if not self.status:
            return
        if self.signals:
            yield f"ended by {signal.Signals(self.signals[0]).name}"
        path = self.directory
        if path is not None and self.outcome in (None, "failed", "stopped"):
            go_on = f"psopt run --resume {shlex.quote(str(path))}"
            yield f"the run is kept in {path}; go on with: {go_on}"


def _say(line: str) -> None:
    print(f"psopt: {line}", file=sys.stderr, flush=True)
