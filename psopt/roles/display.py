"""What a person sees of a running job: a progress bar on a terminal, plain lines in a batch log."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_LINE_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Where the run stands: training figures after a step, test figures after an evaluation."""

    step: int
    epoch: float
    samples: int
    seconds: float
    loss: float | None
    accuracy: float | None
    objective: float | None = None

    @property
    def text(self) -> str:
        """Loss, or the objective in full where it is measured, and accuracy where there is one."""
        loss = "" if self.loss is None else f"loss {self.loss:.4f}"
        if self.objective is not None:
            known = math.isfinite(self.objective)
            loss = f"objective {self.objective:.8g}" if known else "objective not finite"
        return loss + ("" if self.accuracy is None else f"  accuracy {100 * self.accuracy:.2f} %")

    @property
    def rate(self) -> str:
        """Samples a second since the start."""
        return f"{self.samples / self.seconds if self.seconds > 0 else 0.0:,.0f} samples/s"


class Display(Protocol):
    """Somebody who watches."""

    def step(self, figures: Figures) -> None: ...
    def evaluation(self, figures: Figures) -> None: ...
    def warn(self, message: str) -> None: ...
    def note(self, message: str) -> None: ...
    def close(self) -> None: ...


class Screen(Console):
    """A console whose reader may go away (`psopt run ... | head`): the job goes on without."""

    def on_broken_pipe(self) -> None:
        """Called instead of raising; what follows goes nowhere."""
        forget_stdout()


def forget_stdout() -> None:
    """Nobody reads standard output any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class Lines:
    """Plain lines: one an evaluation, and one every few seconds."""

    def __init__(self, console: Console, epochs: int) -> None:
        self._console, self._epochs, self._broken = console, epochs, False
        self._last = time.monotonic()

    def step(self, figures: Figures) -> None:
        """One line every few seconds."""
        if time.monotonic() - self._last < _LINE_EVERY:
            return
        self._say(f"{self._where(figures)}  {figures.text}  {figures.rate}")

    def evaluation(self, figures: Figures) -> None:
        """One line."""
        self._say(f"{self._where(figures)}  test {figures.text}")

    def warn(self, message: str) -> None:
        """A warning."""
        self._say(f"warning: {message}")

    def note(self, message: str) -> None:
        """A line of its own."""
        self._say(message)

    def close(self) -> None:
        """Bring everything out."""
        if not self._broken:
            with contextlib.suppress(OSError):
                self._console.file.flush()

    def _where(self, figures: Figures) -> str:
        return (
            f"{figures.seconds:8.1f} s  step {figures.step:>7,}  "
            f"epoch {figures.epoch:.2f}/{self._epochs}"
        )

    def _say(self, line: str) -> None:
        self._last = time.monotonic()
        if self._broken:
            return
        try:
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)
        except OSError as error:  # a full disk: no reason to end a run
            self._broken = True
            name = getattr(self._console.file, "name", "the log")
            with contextlib.suppress(OSError):
                print(f"psopt: {name}: {error.strerror}; it goes no further", file=sys.stderr)


class Bar:
    """A progress bar over the epochs; evaluations are printed above it."""

    def __init__(self, console: Console, epochs: int) -> None:
        self._lines = Lines(console, epochs)
        self._progress = Progress(
            TextColumn("epoch {task.completed:.2f}/{task.total:.0f}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            refresh_per_second=4,
        )
        self._task = self._progress.add_task("train", total=epochs, figures="")
        self._progress.start()
        self._last = 0.0

    def step(self, figures: Figures) -> None:
        """Move the bar, at most a few times a second."""
        if time.monotonic() - self._last < 0.2:
            return
        self._last = time.monotonic()
        text = f"{figures.text}  {figures.rate}"
        self._progress.update(self._task, completed=figures.epoch, figures=text)

    def evaluation(self, figures: Figures) -> None:
        """A line above the bar."""
        self._lines.evaluation(figures)

    def warn(self, message: str) -> None:
        """A line above the bar."""
        self._lines.warn(message)

    def note(self, message: str) -> None:
        """A line above the bar."""
        self._lines.note(message)

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()


class Several:
    """Several displays as one."""

    def __init__(self, displays: Sequence[Display]) -> None:
        self._displays = displays

    def step(self, figures: Figures) -> None:
        """Pass it to all."""
        for display in self._displays:
            display.step(figures)

    def evaluation(self, figures: Figures) -> None:
        """Pass it to all."""
        for display in self._displays:
            display.evaluation(figures)

    def warn(self, message: str) -> None:
        """Pass it to all."""
        for display in self._displays:
            display.warn(message)

    def note(self, message: str) -> None:
        """Pass it to all."""
        for display in self._displays:
            display.note(message)

    def close(self) -> None:
        """Close all."""
        for display in self._displays:
            display.close()
