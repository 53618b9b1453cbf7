"""What is said of a rank that ended in the middle of a job: supervisors say it, and the launcher reads it.

It is a line on the rank's standard error, for people and for the launcher. Every mpirun brings that
stream here, line by line and from any host, while a pipe or a file of the launcher's would be found on
its own host only; and mpirun's exit status, and what it says itself, mixes up those who died and those
whom it has killed for that. One function writes the line and one reads it, so that they cannot differ.
"""

from __future__ import annotations

import re
import signal
import socket
from dataclasses import dataclass

FAILED = "failed, the job ends"
"""In the line of a rank that ends the job by an error of its own."""

_ENDS = "; the job ends"
_GIVEN_UP = "is given up"
_DEATH = re.compile(
    rf"psopt: rank (\d+) \([a-z0-9 ]+\) on \S+, process \d+, "
    rf"(?:was killed by signal (\d+)|left with status \d+|{_GIVEN_UP}).*{_ENDS}".encode()
)


@dataclass(frozen=True, slots=True)
class Death:
    """A rank whose end, or silence, has ended the job.

    Attributes:
        rank: which one.
        signal: that killed it; None where it left by itself, or is given up.
    """

    rank: int
    signal: int | None


def obituary(rank: str | None, process: int, code: int, *, fatal: bool) -> str:
    """The line, without its end.

    Args:
        rank: who ended, where that is known.
        process: of the rank.
        code: its exit code, negative for a signal.
        fatal: whether the job ends by this.
    """
    end = _ENDS if fatal else ""
    return f"psopt: {_who(rank)} on {socket.gethostname()}, process {process}, {_how(code)}{end}"


def never_met(rank: str | None, process: int, seconds: float) -> str:
    """The line for a rank that MPI has not brought together with the others."""
    return (
        f"psopt: {_who(rank)} on {socket.gethostname()}, process {process}: MPI has not brought the ranks "
        f"together within {seconds:g} s: one of them is missing, or the launcher and this MPI do not "
        "understand each other (psopt doctor; srun --mpi=list)"
    )


def given_up(rank: int, host: str, process: int, why: str) -> str:
    """The line for a worker that the coordinator ends the job for, since it does not answer, say."""
    who = f"rank {rank} (worker {rank - 1}) on {host}, process {process}"
    return f"psopt: {who}, {_GIVEN_UP}: it {why}{_ENDS}"


def death_in(line: bytes) -> Death | None:
    """Who has ended the job by dying, where a line says so; whatever stands around that."""
    found = _DEATH.search(line)
    return found and Death(int(found[1]), None if found[2] is None else int(found[2]))


def _who(rank: str | None) -> str:
    if rank is None:
        return "a rank"
    role = "coordinator" if rank == "0" else f"worker {int(rank) - 1}"
    return f"rank {rank} ({role})"


def _how(code: int) -> str:
    if code >= 0:
        return f"left with status {code} before the job was complete"
    hint = ""
    if -code == signal.SIGKILL:
        hint = " (if nobody sent it: the kernel, for want of memory)"
    return f"was killed by signal {-code}, {_name(-code)}{hint}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time one
        return "without a name"
