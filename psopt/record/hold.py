"""A directory that one process holds. The hold ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from pathlib import Path

_LOCKS = Path("/proc/locks")
_LOCK = re.compile(r"\d+: FLOCK +ADVISORY +WRITE (\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ")
_TRIES, _PAUSE = 5, 0.02  # seconds: whoever only looks holds it for a moment


class Hold:
    """A directory that is held; it is free again after ``release``, or when this process ends.

    Args:
        descriptor: of the directory, locked.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def release(self) -> None:
        """Let others in. Twice does no harm."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def lock(path: Path) -> Hold | None:
    """Hold a directory, or None when another process does; one without locks is held by all who ask."""
    held = Hold(os.open(path, os.O_RDONLY))
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(held.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE)
        except OSError:
            return held  # a file system without locks
        else:
            return held
    held.release()
    return None


def is_held(path: Path) -> bool | None:
    """Whether another process holds a directory; None where its file system cannot tell."""
    try:
        look = Hold(os.open(path, os.O_RDONLY))
    except OSError:
        return None
    try:
        fcntl.flock(look.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            look.release()
    return False


def holder(path: Path) -> int | None:
    """The process on this host that holds a directory; None where there is none that can be seen (Linux).

    The kernel lists who holds which inode, and a process's open files say on which file system it is.
    """
    wanted = path.stat()
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    held = [match for line in lines if (match := _LOCK.match(line))]
    holders = (int(match[1]) for match in held if int(match[2]) == wanted.st_ino)
    return next((pid for pid in holders if _has_open(pid, wanted)), None)


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    return False
