"""Each rank runs below a small supervisor of its own, which knows how the rank ended and says so.

When a rank dies, mpirun kills the others and then names one of them as often as the one that died,
with the signal that it sent itself. Only a process's own parent learns how it ended. So a rank forks
before anything large is loaded: the child goes on as the rank, the parent waits, and

- says which rank left without finishing, and how: by a signal, or by an exit in the middle;
- ends with status 0 only when the rank has finished;
- ends a rank that MPI does not bring together with the others, and says so: where one of them is missing,
  or the launcher and MPI misunderstand each other, all would wait for ever;
- kills what the rank started and left running (it adopts them, Linux), and the rank itself when
  that has failed or finished but does not come to its end, or when mpirun is gone. Who has finished
  has everything on disk, so a rank that hangs in MPI's Finalize costs patience and not its status.

The rank tells its supervisor who it is and how far it is through a pipe (``Notes``).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping

import psutil

from psopt.crew.process import die_with_parent
from psopt.obituary import never_met, obituary
from psopt.processes import adopt_orphans, kill_children, rank_of, signal_at_parents_death

TOLERANT = os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112 - Open MPI's own name
"""Whether mpirun goes on when a rank dies (Open MPI's, --with-ft ulfm)."""

PATIENCE = 30.0
"""Seconds for a rank that has finished to come to its end, MPI's Finalize included."""

MEETING = 300.0
"""Seconds for MPI to bring the ranks together once one is there; ``PSOPT_MEETING_SECONDS`` says otherwise."""

_LONGEST = 1e6  # seconds that anybody may ask for
_PATIENCE_WITH_FAILED = 5.0  # seconds for a rank that has failed to come to its end
_PAUSE = 0.2  # who kills a rank for another one's failure reaches its supervisor within this time
_TOGETHER = (
    0.4  # those who die within this time are all named, before mpirun kills their supervisors
)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_SLURM = "slurmstepd"
_MPIRUN = 2.0  # seconds for mpirun to end by itself
_HEEDED = 0.5  # seconds in which mpirun kills whose connection has ended
_DESCRIPTORS = 1 << 12
_MEETING, _RANK, _DISPENSABLE, _FAILED, _FINISHED = b"m", b"r", b"d", b"x", b"f"


class Notes:
    """What a rank tells its supervisor; without one, nobody listens.

    Args:
        descriptor: of the pipe.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor

    def meeting(self) -> None:
        """MPI is about to bring the ranks together."""
        self._write(_MEETING)

    def rank(self, rank: int) -> None:
        """This process is that rank: they are together."""
        self._write(_RANK + str(rank).encode())

    def dispensable(self) -> None:
        """From now on the others outlive this rank, where MPI can do that."""
        self._write(_DISPENSABLE)

    def failed(self, status: int = 1) -> None:
        """This rank has printed why it fails, and is about to end (the job) with ``status``."""
        self._write(_FAILED + str(status).encode())

    def finished(self, status: int = 0) -> None:
        """This rank has done everything that it had to do, and is about to end with ``status``."""
        self._write(_FINISHED + str(status).encode())

    def _write(self, word: bytes) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.write(self._descriptor, word + b"\n")


def supervise(patience: float = PATIENCE, prepare: Callable[[], None] = lambda: None) -> Notes:
    """Fork. Returns in the child, which is the rank from now on; the parent exits as the rank does.

    Args:
        patience: seconds for the end of a rank that has finished.
        prepare: called in the child before a signal can reach it.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    words, notes = os.pipe()
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # until there is a handler for them
    child = os.fork()
    if not child:
        prepare()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(words)
        die_with_parent(parent)
        return Notes(notes)
    os.close(notes)
    os._exit(_Supervisor(child, words, patience).watch(mask))


class _Supervisor:
    """The parent's side.

    Args:
        process: of the rank.
        words: where its notes come.
        patience: seconds for its end once it has finished.
    """

    def __init__(self, process: int, words: int, patience: float) -> None:
        self._process, self._words, self._listening = process, words, True
        self._patience = patience
        self._rank = rank_of(os.environ)
        self._finished = self._failed = self._dispensable = self._meeting = False
        self._deadline: float | None = None
        self._status = 1  # with which the rank means to end
        self._impatient = False
        self._received: set[int] = set()
        self._parent = os.getppid()
        self._bell, self._rope = os.pipe()

    def watch(self, mask: set[int]) -> int:
        """Wait until the rank has ended; this process's exit status. ``mask``: signals to block."""
        adopt_orphans()
        os.set_blocking(self._rope, False)
        os.set_blocking(self._words, False)
        signal.set_wakeup_fd(self._rope, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal_at_parents_death(signal.SIGHUP)
        while (status := self._reap()) is None:
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._impatient = True
                kill_children()
            self._sleep()
            self._listen()
        self._listen()
        kill_children()
        return self._judge(os.waitstatus_to_exitcode(status))

    def _pass_on(self, number: int, _: object) -> None:
        """A signal to this process is meant for the rank; mpirun and Slurm mostly reach both."""
        self._received.add(number)
        if os.getppid() != self._parent:  # mpirun is gone, and with it the job
            kill_children()
        elif number != signal.SIGINT:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process, number)

    def _reap(self) -> int | None:
        """The rank's wait status once it has ended."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._process:
                    return ended[1]
        return None

    def _sleep(self) -> None:
        """Until a child has ended, a signal or a note has come, or patience has."""
        sources = [self._bell, self._words] if self._listening else [self._bell]
        left = None if self._deadline is None else max(0.1, self._deadline - time.monotonic())
        if self._bell in select.select(sources, [], [], left)[0]:
            os.read(self._bell, 1 << 10)

    def _listen(self) -> None:
        """Take in the notes that have come."""
        with contextlib.suppress(BlockingIOError):
            while self._listening:
                words = os.read(self._words, 1 << 10)
                self._listening = bool(words)
                for word in words.splitlines():
                    self._note(word)

    def _note(self, word: bytes) -> None:
        if word.startswith(_FINISHED):
            self._finished = True
            self._mean_to_end(int(word.removeprefix(_FINISHED)), self._patience)
        elif word.startswith(_DISPENSABLE):
            self._dispensable = True
        elif word.startswith(_FAILED):
            self._failed = True
            self._mean_to_end(int(word.removeprefix(_FAILED)), _PATIENCE_WITH_FAILED)
        elif word.startswith(_MEETING):
            self._meeting, self._deadline = True, time.monotonic() + meeting_seconds(os.environ)
        else:
            self._meeting, self._deadline = False, None
            self._rank = word.removeprefix(_RANK).decode()

    def _mean_to_end(self, status: int, patience: float) -> None:
        """The rank is about to end with ``status``; what it holds on to then is of no use to anybody."""
        self._status, self._deadline = status, time.monotonic() + patience
        self._meeting = False

    def _see_mpirun_off(self) -> None:
        """Have mpirun end the job without this rank; the others wait for it.

        It learns of the death by the end of its connection to the rank, which this process shares. That has
        to come before this process ends: MPICH's mpirun goes on where it has reaped a process first, and
        then finds its connection closed. Should it go on all the same, a process of its own ends it: Open
        MPI's with ULFM goes on always.
        """
        time.sleep(_TOGETHER)
        signal.set_wakeup_fd(-1)
        os.closerange(3, _DESCRIPTORS)
        if not TOLERANT:
            time.sleep(_HEEDED)
        with contextlib.suppress(psutil.Error):
            if psutil.Process(self._parent).name() == _SLURM:  # sees to it by itself
                return
        if rank_of(os.environ) is None or os.fork():
            return
        os.closerange(0, _DESCRIPTORS)  # nobody is to think that the rank is still there
        end = time.monotonic() + (0.0 if TOLERANT else _MPIRUN)
        for number in (signal.SIGTERM, signal.SIGKILL):
            while time.monotonic() < end:
                if not _is_there(self._parent):
                    os._exit(0)
                time.sleep(0.05)
            with contextlib.suppress(OSError):
                os.kill(self._parent, number)
            end = time.monotonic() + _MPIRUN
        os._exit(0)

    def _judge(self, code: int) -> int:
        """Say what nobody else can say of the end; the exit status."""
        if self._finished and self._impatient:
            return self._status
        if self._meeting and self._impatient:
            text = never_met(self._rank, self._process, meeting_seconds(os.environ))
            print(text, file=sys.stderr, flush=True)
            self._see_mpirun_off()
            return 1
        if code < 0:
            time.sleep(_PAUSE)
        died = -code not in self._received and (code < 0 or not (self._finished or self._failed))
        fatal = self._failed or not (TOLERANT and self._dispensable)
        if died and not self._failed:
            line = obituary(self._rank, self._process, code, fatal=fatal)
            print(line, file=sys.stderr, flush=True)
        if died and fatal:
            self._see_mpirun_off()
        if code < 0 and TOLERANT:
            os.kill(
                os.getpid(), signal.SIGKILL
            )  # the launcher heeds signals, and passes statuses over
        if code < 0:
            return self._status if self._impatient else 128 - code
        return code if self._finished else code or 1


def meeting_seconds(environ: Mapping[str, str]) -> float:
    """How long ranks wait for each other while MPI begins; what is no such number is passed over."""
    with contextlib.suppress(ValueError):
        given = float(environ.get("PSOPT_MEETING_SECONDS", ""))
        if 0 < given <= _LONGEST:
            return given
    return MEETING


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):  # its number is somebody else's now
        return False
    return True
