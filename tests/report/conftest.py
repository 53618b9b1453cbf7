from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from psopt.record import RunDirectory
from tests.report.synthetic import Shape, make_run


@pytest.fixture
def console() -> Console:
    return Console(width=200, record=True, force_terminal=False)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run directories of every kind, to be read only."""
    root = tmp_path_factory.mktemp("runs")
    slow = {1: 3.0}
    made = {
        "bsp": Shape("bsp-job", True, workers=2, steps=60, slowdown=slow, rate=1 / 20),
        "asp": Shape("asp-job", False, workers=3, steps=60, slowdown=slow, rate=1 / 40),
        "wild": Shape("wild-job", False, workers=3, steps=60, rate=1 / 20, diverges=True),
    }
    paths = {key: make_run(root / key, shape) for key, shape in made.items()}
    going = Shape("going-job", False, workers=2, steps=60, scheme="wasp")
    paths["going"] = make_run(root / "going", going, summary=False)
    paths["empty"] = bare(root / "$empty _dir", "name: 123\n")
    failed = bare(root / "failed", "name: failed-job\nscheme: {name: bsp}\n")
    summary = {"name": "failed-job", "status": "failed", "reason": "worker 1 raised ValueError"}
    RunDirectory(failed).write_summary({**summary, "workers": 4, "steps": 0, "seconds": 0.0})
    return {**paths, "failed": failed}


def bare(path: Path, config: str) -> Path:
    """A run directory with nothing but its config."""
    run = RunDirectory.create(path, "job")
    run.write_config(config)
    return path
