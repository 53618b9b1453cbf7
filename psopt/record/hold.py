"""A directory that one process holds. The hold ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

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
