"""A requeued job waits for what is left of itself; nobody else waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from psopt.record import RunDirectory, RunExists, hold_again
from psopt.record import requeued as module

REQUEUED = {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", "job")


@pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_ID": "12"}, {"SLURM_RESTART_COUNT": "1"}])
def test_others_are_refused_at_once(run: RunDirectory, environ: dict[str, str]) -> None:
    hold, said = run.hold(), list[str]()
    with pytest.raises(RunExists, match="another process runs in it"):
        hold_again(run, environ, said.append)
    assert said == []
    hold.release()
    hold_again(run, environ).release()


def test_it_waits_for_the_end(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    hold, said, naps = run.hold(), list[str](), list[float]()

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if naps.count(module._LOOK) == 3:
            hold.release()

    monkeypatch.setattr(module.time, "sleep", sleep)
    hold_again(run, REQUEUED, said.append).release()
    assert naps.count(module._LOOK) == 3
    assert said == [
        f"psopt: {run.path}: waiting for processes of this job from before it was requeued"
    ]


def test_its_patience_ends(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    monkeypatch.setattr(module, "_LOOK", 0.05)
    hold = run.hold()
    with pytest.raises(RunExists, match="another process runs in it"):
        hold_again(run, REQUEUED)
    hold.release()
    assert capsys.readouterr().err.count("waiting for processes") == 1
