"""Real ranks: the only file that imports mpi4py.

Importing this module initialises MPI, so only a process that a launcher started as a rank imports
it. Everything above works with ``World`` and the small ``Communicator`` protocol of
``crew/wire.py``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import mpi4py
import numpy as np
import numpy.typing as npt

mpi4py.rc.thread_level = (
    "serialized"  # one thread of a rank talks to MPI; a lock-free library is faster
)
from psopt.crew.supervisor import TOLERANT  # noqa: E402

if TOLERANT:
    mpi4py.rc.finalize = False  # it would wait for the dead

from mpi4py import MPI  # noqa: E402 (thread_level must be set before)

from psopt.crew.wire import Outgoing, RankGone, Request, Tag, Wire  # noqa: E402

_DEATHS = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING)
_TO_RECORD = 3.0  # seconds that a failing worker leaves the coordinator to record it


class WorldError(RuntimeError):
    """The ranks that MPI sees are not the ranks that were started."""


class Ranks:
    """Adapts an MPI communicator to the wire's ``Communicator``.

    Attributes:
        gone: ranks that have died, where this rank is to survive that.
        outlive: whether it is.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._status = MPI.Status()
        self.outlive = False
        self.gone: frozenset[int] = frozenset()

    def survive(self) -> None:
        """From now on the death of another rank is noticed, and no call fails by it."""
        self.outlive = True

    def Isend(self, buf: Any, dest: int, tag: int) -> Request:  # noqa: N802
        """Start sending bytes."""
        return self._started(lambda: self._comm.Isend([buf, MPI.BYTE], dest, tag))

    def Irecv(self, buf: Any, source: int, tag: int) -> Request:  # noqa: N802
        """Start receiving bytes."""
        return self._started(lambda: self._comm.Irecv([buf, MPI.BYTE], source, tag))

    def _started(self, start: Callable[[], MPI.Request]) -> Request:
        """A request; one that ends, with nothing received, where its other end dies."""
        if not self.outlive:
            return start()
        try:
            return _Survivor(start(), self._notice)
        except MPI.Exception as error:
            self._notice(error)
            return _Ended()

    def _notice(self, error: MPI.Exception) -> None:
        """See who has died; any other error is raised again."""
        if not self.outlive or error.Get_error_class() not in _DEATHS:
            raise error
        self.look()

    def look(self) -> None:
        """See who has died, where that is to be survived."""
        if not self.outlive:
            return
        failed = self._comm.Get_failed()
        count = failed.Get_size()
        found = failed.Translate_ranks(list(range(count)), self._comm.Get_group())
        failed.Free()
        self._comm.Ack_failed(count)
        self.gone |= frozenset(found)

    def Recv(self, buf: Any, source: int, tag: int) -> None:  # noqa: N802
        """Receive bytes that have arrived."""
        try:
            self._comm.Recv([buf, MPI.BYTE], source, tag)
        except MPI.Exception as error:
            self._notice(error)
            raise RankGone(source) from error

    def probe(self, source: int | None, tag: int) -> tuple[int, int] | None:
        """(source, bytes) of a message that has arrived."""
        wanted = MPI.ANY_SOURCE if source is None else source
        try:
            if not self._comm.Iprobe(wanted, tag, self._status):
                return None
        except MPI.Exception as error:
            self._notice(error)
            return None
        return self._status.Get_source(), self._status.Get_count(MPI.BYTE)


@dataclass(slots=True)
class _Survivor:
    """A request that ends when its other end dies."""

    request: MPI.Request
    notice: Callable[[MPI.Exception], None]

    def Test(self) -> bool:  # noqa: N802
        """Whether it has ended."""
        try:
            return self.request.Test()
        except MPI.Exception as error:
            self.notice(error)
            return True

    def Cancel(self) -> None:  # noqa: N802
        """Receive nothing any more."""
        with contextlib.suppress(MPI.Exception):
            self.request.Cancel()


class _Ended:
    def Test(self) -> bool:  # noqa: N802
        """At once."""
        return True

    def Cancel(self) -> None:  # noqa: N802
        """There is nothing to cancel."""


class World:
    """This process among the ranks of the job.

    Attributes:
        rank, size: position among the ranks, and their number.
        local_worker: number of this worker among the workers on this host.
        share: cores for each worker that has the same cores to itself as this rank; the coordinator
        mostly sleeps.
        ranks: what the wire sends over.
        tolerant: whether this MPI goes on without a rank that has died.
        deserted: set where a rank is still there that does not answer.
        failure: raised where MPI cannot complete a call, as when another rank has died.

    Raises:
        WorldError: the launcher started several processes, but MPI sees one.
    """

    failure: tuple[type[Exception], ...] = (MPI.Exception, RankGone)

    def __init__(self) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        started = _started_by_launcher()
        if self.size == 1 and started > 1:
            raise WorldError(
                f"the launcher started {started} processes, but each sees an MPI world of 1. "
                "Under Slurm pass the right --mpi to srun (MPICH: --mpi=pmi2, Open MPI: --mpi=pmix; "
                "`srun --mpi=list` shows what there is); under mpirun use the one that belongs to "
                f"mpi4py's library ({library()}); `psopt doctor` tests this"
            )
        shared = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        neighbours = shared.allgather((self.rank, tuple(sorted(os.sched_getaffinity(0)))))
        shared.Free()
        workers = [(rank, cores) for rank, cores in neighbours if rank > 0]
        self.local_worker = sum(rank < self.rank for rank, _ in workers)
        mine = next(cores for rank, cores in neighbours if rank == self.rank)
        self.share = len(mine) // max(1, sum(cores == mine for _, cores in workers))
        self.ranks = Ranks(self._comm)
        self.tolerant = TOLERANT
        self.deserted = self.digest = False

    def agree(self, value: Any) -> Any:
        """Rank 0's ``value``, on every rank; those who wait for it sleep."""
        packed = pickle.dumps(value, protocol=5)
        size = np.array([len(packed)], dtype=np.int64)
        self._broadcast(size)
        if len(packed) != size[0]:  # some other rank's own value, which makes way
            packed = bytes(size[0])
        memory = np.frombuffer(bytearray(packed), dtype=np.uint8)
        self._broadcast(memory)
        return pickle.loads(memory.tobytes())

    def _broadcast(self, memory: npt.NDArray[Any]) -> None:
        """Rank 0's bytes into ``memory``; MPI's own ``Bcast`` would spin until they come."""
        Outgoing([self._comm.Ibcast([memory, MPI.BYTE], root=0)], [memory]).wait()

    def confess(self, cause: str) -> None:
        """Tell rank 0 that this rank fails; returns when rank 0 has not ended the job in time."""
        with contextlib.suppress(MPI.Exception):
            wire = Wire(self.ranks, digest=self.digest)
            message = wire.send(0, (Tag.FAILURE, Tag.FAILURE), cause, ())
            end = time.monotonic() + _TO_RECORD
            while time.monotonic() < end:
                message.done()  # lets MPI go on
                time.sleep(0.02)

    def abort(self, status: int) -> NoReturn:
        """End every rank of the job now; a worker that the others outlive ends by itself."""
        if self.ranks.outlive and self.rank:
            os.kill(os.getpid(), signal.SIGKILL)  # what the others notice; an exit is not
        try:
            MPI.COMM_WORLD.Abort(status)
        finally:
            os._exit(status)  # MPICH returns

    def describe(self) -> dict[str, Any]:
        """What the record keeps of MPI."""
        return {
            "library": library(),
            "standard": ".".join(map(str, MPI.Get_version())),
            "thread_level": thread_level(),
            "ranks": self.size,
            "mpi4py": mpi4py.__version__,
        }

    def host(self) -> str:
        """Name of this host."""
        return socket.gethostname()


def library() -> str:
    """The MPI library's name and version."""
    return MPI.Get_library_version().strip("\0").splitlines()[0].strip()


def thread_level() -> str:
    """Which threads of a rank may talk to MPI."""
    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
        MPI.THREAD_MULTIPLE: "multiple",
    }
    return levels[MPI.Query_thread()]


def meet() -> dict[str, Any]:
    """What this rank sees of MPI, with the sum of a one from each rank."""
    comm = MPI.COMM_WORLD
    return {
        "size": comm.Get_size(),
        "total": comm.allreduce(1),
        "library": " ".join(library().split(",")[0].split()),
        "threads": thread_level(),
        "mpi4py": mpi4py.__version__,
    }


def _started_by_launcher() -> int:
    """How many processes the launcher says that it started."""
    for variable in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        text = os.environ.get(variable, "")
        if text.isdigit():
            return int(text)
    return 1
