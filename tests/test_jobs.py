"""The scripts of `jobs/` that stand for a command, and the search, as users start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from psopt.record import RunDirectory
from tests.sweep.making import sweep_file
from tests.training import ROOT, job_file, tiny


def start(job: str, *words: object) -> str:
    """What a script prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / f"{job}.py"), *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_train(tmp_path: Path) -> None:
    config = job_file(tmp_path, tiny(tmp_path), train={"epochs": 1, "batch_size": 4})
    assert "completed" in start("train", config, "--simulate", "--out", tmp_path / "run")
    summary = RunDirectory.open(tmp_path / "run").read_summary()
    assert summary is not None
    assert summary["status"] == "completed"


def test_sweep(tmp_path: Path) -> None:
    path = sweep_file(tmp_path / "files", "seeds: 2\n")
    said = start("sweep", path, "--out", tmp_path / "out", "--local")
    assert "2 done, 0 failed" in said


def test_search_goes_on(tmp_path: Path) -> None:
    config = job_file(tmp_path, tiny(tmp_path), train={"epochs": 1, "batch_size": 4})
    out = tmp_path / "out"
    start("search", config, out, 2, "train.epochs=2")
    said = start("search", config, out, 1)
    assert sorted(path.name for path in out.glob("trial-*")) == [f"trial-000{n}" for n in range(3)]
    summaries = [json.loads(path.read_bytes()) for path in sorted(out.glob("*/summary.json"))]
    assert [summary["epochs"] for summary in summaries] == [2, 2, 1]
    best = max(summary["test_accuracy"] for summary in summaries)
    assert f"best: test accuracy {best:.4f}, " in said
