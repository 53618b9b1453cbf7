"""The runs of a sweep on this host: some at a time, each a `psopt run` of its own.

A run gets a session of its own, so that the keys of a terminal reach this process alone, which passes
signals on; should it be killed, the kernel ends the runs. What a run says goes to its own log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from psopt.processes import signal_at_parents_death
from psopt.record import (
    OUTPUT,
    Ended,
    Standing,
    State,
    Submission,
    forget_ended,
    last_words,
    standing_of,
    write_ended,
)
from psopt.sweep.book import Todo

_NAP = 0.05  # seconds between looks at the runs
_GRACE = 20.0  # seconds in which a run that was told to end may do so

Tell = Callable[[Todo, Standing, float], None]
"""Called with each run that has ended, how it stands, and its seconds."""


@dataclass
class _Child:
    """A run in the making."""

    todo: Todo
    process: subprocess.Popen[bytes]
    began: float


@dataclass
class Local:
    """Runs on this host.

    Args:
        ranks: MPI ranks of each; None: on the virtual cluster.
        width: how many at a time.
        tell: hears of each end.

    Attributes:
        signals: that have come; after the first no run is started, and those that run are ended.
    """

    ranks: int | None
    width: int
    tell: Tell
    signals: list[int] = field(default_factory=list)

    def run(self, todo: Sequence[Todo]) -> None:
        """Run all, or as far as signals let; not those that somebody else runs by then.

        Raises:
            OSError: a run cannot be started, or its end not be recorded; the others are ended.
        """
        waiting, running = [*reversed(todo)], list[_Child]()
        try:
            with self._heeded():
                self._conduct(waiting, running)
        finally:
            _signal(running, kill=True)

    def _conduct(self, waiting: list[Todo], running: list[_Child]) -> None:
        told, asked = 0, 0.0
        while running or (waiting and not self.signals):
            while waiting and len(running) < self.width and not self.signals:
                self._begin(waiting.pop(), running)
            if told < len(self.signals):
                told, asked = len(self.signals), asked or time.monotonic()
                _signal(running, kill=told > 1)
            elif asked and time.monotonic() - asked > _GRACE:
                _signal(running, kill=True)
            for child in [child for child in running if child.process.poll() is not None]:
                running.remove(child)
                self._end(child)
            time.sleep(_NAP)

    def _begin(self, todo: Todo, running: list[_Child]) -> None:
        """Start a run, unless it was done or begun by another sweep since."""
        now = standing_of(todo.path)
        if now.state in (State.DONE, State.RUNNING):
            self.tell(todo, now, 0.0)
        else:
            running.append(self._start(todo))

    def _start(self, todo: Todo) -> _Child:
        forget_ended(todo.path)
        Submission.forget(todo.path)
        with (todo.path / OUTPUT).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "psopt", *todo.arguments(self.ranks)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._threads()},
                start_new_session=True,
                preexec_fn=_die_with_launcher,
            )
        return _Child(todo, process, time.monotonic())

    def _end(self, child: _Child) -> None:
        """Record how a run ended, and say it."""
        code, path = child.process.returncode, child.todo.path
        status = 128 - code if code < 0 else code
        stopped = bool(self.signals) and status != 0
        write_ended(path, Ended(status, last_words(path) if status else "", stopped))
        self.tell(child.todo, standing_of(path), time.monotonic() - child.began)

    def _threads(self) -> dict[str, str]:
        """CPU threads, so that runs beside each other do not crowd; the user's own word wins."""
        if self.width == 1 or "OMP_NUM_THREADS" in os.environ:
            return {}
        cores = len(os.sched_getaffinity(0))
        return {"OMP_NUM_THREADS": str(max(1, cores // (self.width * (self.ranks or 1))))}

    @contextlib.contextmanager
    def _heeded(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = [
            signal.signal(number, lambda came, _frame: self.signals.append(came))
            for number in heeded
        ]
        try:
            yield
        finally:
            for number, handler in zip(heeded, before, strict=True):
                signal.signal(number, handler)


def _signal(running: Sequence[_Child], *, kill: bool) -> None:
    """Tell runs to end; or end them, with all of their session."""
    for child in running:
        with contextlib.suppress(ProcessLookupError):
            if kill:
                os.killpg(child.process.pid, signal.SIGKILL)
            else:
                child.process.send_signal(signal.SIGTERM)


def _die_with_launcher() -> None:
    signal_at_parents_death(signal.SIGTERM)
