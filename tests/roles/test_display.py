from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from psopt import running
from psopt.roles.display import Bar, Figures, Lines, Several
from tests.training import Watcher, configured, tiny

FIGURES = Figures(step=1200, epoch=1.5, samples=4800, seconds=12.0, loss=0.25, accuracy=0.875)
CONTROL = re.compile(r"[^\x20-\x7e\n]")


def lines(*, terminal: bool = False) -> tuple[Lines, io.StringIO]:
    file = io.StringIO()
    return Lines(Console(file=file, width=60, force_terminal=terminal), 3), file


def test_batch_log_is_plain_text() -> None:
    shown, file = lines()
    shown.evaluation(FIGURES)
    shown.warn("checkpoint at step 3 failed: [Errno 28] No space left on device: '/a/[b]/c'")
    shown.close()
    assert not CONTROL.search(file.getvalue())
    first, second = file.getvalue().splitlines()
    assert first == "    12.0 s  step   1,200  epoch 1.50/3  test loss 0.2500  accuracy 87.50 %"
    assert second.endswith("'/a/[b]/c'")  # one line, however long, and no markup


def test_steps_are_shown_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("psopt.roles.display.time.monotonic", lambda: clock[0])
    shown, file = lines()
    for _ in range(12):
        clock[0] += 1.0
        shown.step(FIGURES)
    assert len(file.getvalue().splitlines()) == 2
    assert "400 samples/s" in file.getvalue()


def test_no_accuracy_no_loss_no_time() -> None:
    figures = Figures(step=0, epoch=0.0, samples=0, seconds=0.0, loss=None, accuracy=None)
    assert figures.text == ""
    assert figures.rate == "0 samples/s"


def test_bar_on_a_terminal() -> None:
    file = io.StringIO()
    bar = Bar(Console(file=file, width=100, force_terminal=True), 3)
    bar.step(FIGURES)
    bar.evaluation(FIGURES)
    bar.warn("look out")
    bar.close()
    text = file.getvalue()
    assert "\x1b[" in text
    assert "━" in text or "-" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "epoch 1.50/3" in plain
    assert "loss 0.2500  accuracy 87.50 %  400 samples/s" in plain
    assert "warning: look out" in plain


def test_several_pass_everything_on() -> None:
    watchers = Watcher(), Watcher()
    both = Several(watchers)
    both.step(FIGURES)
    both.evaluation(FIGURES)
    both.warn("x")
    both.close()
    for watcher in watchers:
        assert (watcher.steps, watcher.evaluations) == ([FIGURES], [FIGURES])
        assert watcher.warnings == ["x"]


@pytest.mark.parametrize(("columns", "kind"), [(None, Lines), ("90", Bar)])
def test_launcher_says_whether_there_is_a_terminal(
    columns: str | None, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open MPI gives every rank a terminal of its own, which is none."""
    monkeypatch.delenv("PSOPT_TERMINAL", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: columns is None, raising=False)
    if columns:
        monkeypatch.setenv("PSOPT_TERMINAL", columns)
    shown = running._display(io.StringIO(), configured(tiny(tmp_path)), real=True)
    assert isinstance(shown, Several)
    screen, log = shown._displays
    shown.close()
    assert type(screen) is kind
    assert type(log) is Lines
