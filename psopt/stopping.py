"""Being asked to stop: a signal that comes some time before a job's end, with time for a checkpoint.

Batch systems warn of a time limit or a pre-emption so, mostly by a signal to every rank. The coordinator
goes on to the end of the step that it is in, saves a checkpoint, and ends the run as ``stopped``. Workers
serve until it does; one that got SIGTERM, and is not told to end within ``GRACE``, ends by that. A second
signal does no harm.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

ASKING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that ask for it."""

GRACE = 300
"""Seconds for a worker, after SIGTERM, to be told to end."""


class StopRequest:
    """Whether this process was asked to stop.

    Attributes:
        received: number of the signal; None: it was not.
    """

    def __init__(self) -> None:
        self.received: int | None = None

    def heed(self) -> None:
        """From now on the signals end nothing by themselves."""
        for number in ASKING:
            signal.signal(number, self._come)

    def lasts(self) -> None:
        """This process is a worker, which SIGTERM ends at last."""
        signal.signal(signal.SIGALRM, _end)
        signal.signal(signal.SIGTERM, self._come_to_worker)

    @property
    def name(self) -> str | None:
        """Of the signal."""
        return None if self.received is None else signal.Signals(self.received).name

    def _come(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number

    def _come_to_worker(self, number: int, frame: FrameType | None) -> None:
        if self.received != number:
            signal.alarm(GRACE)
        self.received = number


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
