"""How a process that computes is set up: memory, and that it does not outlive its parent.

Memory is glibc's; elsewhere the call does nothing, and only speed differs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import MutableMapping
from importlib.metadata import PackageNotFoundError, distribution

from psopt.processes import signal_at_parents_death

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_memory() -> None:
    """Have malloc keep what it has, and torch ask for huge pages. Call it before the first tensor.

    Activations are freed and wanted again every step. By default glibc returns large blocks to the
    kernel and faults them in again, page by page, each step. On a small network that cost a third
    of the time of a step, and made it irregular, which synchronous workers pay twice.

    Ranks of one host copy messages out of each other's memory page by page: with pages of 4 KiB
    that takes twice as long for large parameters.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # what every glibc accepts
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(_M_TOP_PAD, 64 << 20)


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the one that started it dies.

    Args:
        parent: its process; the present parent if omitted.
    """
    parent = os.getppid() if parent is None else parent
    signal_at_parents_death(signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def short_addresses(environ: MutableMapping[str, str]) -> None:
    """Have MPICH's wheel under Slurm's pmi2 use addresses that this PMI can take. Call it before MPI begins.

    It speaks PMI's first version there, of which Slurm cuts lines at 1,024 bytes. UCX sends a block of
    4 KiB in pieces whose length depends on what memory happens to hold; now and then one is too long, and
    the ranks wait for each other for ever. Libfabric's addresses are short. A choice that was made is kept.
    """
    if environ.get("SLURM_MPI_TYPE") == "pmi2" and "PMI_FD" in environ:
        with contextlib.suppress(PackageNotFoundError):
            distribution("mpich")
            environ.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")
