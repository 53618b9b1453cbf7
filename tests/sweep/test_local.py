"""Sweeps that really run, on the virtual cluster of this host."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from psopt.record import State, SweepDirectory, standing_of
from tests.sweep.making import sweep_file
from tests.training import ROOT, psopt, tiny

FOUR = "zip: {seed: [1, 2, 3, 4], data.path: [%s, %s, %s, %s]}\n"


def counts(out: Path) -> dict[str, int]:
    done = psopt("status", out, "--json")
    found: dict[str, int] = json.loads(done.stdout)["counts"]
    return {state: count for state, count in found.items() if count}


def summaries(out: Path) -> dict[Any, dict[str, Any]]:
    directory = SweepDirectory(out)
    return {
        entry.assignment["seed"]: standing_of(directory.run_path(entry.id)).summary
        for entry in directory.read().runs
    }


def test_one_of_four_fails_and_is_mended(tmp_path: Path) -> None:
    data, later = tmp_path / "files" / "tiny.h5", tmp_path / "later" / "tiny.h5"
    path = sweep_file(tmp_path / "files", FOUR % (data, data, later, data))
    out = tmp_path / "out"
    command = ("sweep", path, "--out", out, "--local", "--jobs", 2)

    first = psopt(*command)
    assert first.returncode == 1, first.stderr
    assert counts(out) == {"done": 3, "failed": 1}
    assert "[4/4]" in first.stdout
    (said,) = [line for line in first.stdout.splitlines() if "] failed" in line]
    assert "exit status 2" in said
    assert str(later) in said
    assert said.partition("log: ")[2].split(" (")[0].endswith("output.log")
    assert "--only failed" in first.stdout.splitlines()[-1]
    before = summaries(out)
    assert {summary["seed"] for summary in before.values() if summary} == {1, 2, 4}

    second = psopt(*command)
    assert second.returncode == 1
    assert "running 0" in second.stdout
    assert psopt("status", out).returncode == 1

    later.parent.mkdir()
    tiny(later.parent)
    third = psopt(*command, "--only", "failed")
    assert third.returncode == 0, third.stdout + third.stderr
    assert "running 1" in third.stdout
    after = summaries(out)
    assert {seed: after[seed] for seed in (1, 2, 4)} == {seed: before[seed] for seed in (1, 2, 4)}
    assert after[3]["status"] == "completed"

    last = psopt(*command)
    assert (last.returncode, "running 0" in last.stdout) == (0, True)
    assert psopt("status", out).returncode == 0


def test_what_was_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    text = "fixed: {train.epochs: 3, checkpoint.every_steps: 2}\nseeds: 2\n"
    path = sweep_file(tmp_path / "files", text, model={"factory": "tests.deadly:model"})
    out = tmp_path / "out"
    command = ("sweep", path, "--out", out, "--local")
    deadly = {"DIE_AT": "step 7", "DIED": str(tmp_path / "died")}

    first = psopt(*command, **deadly)
    assert first.returncode == 1, first.stdout + first.stderr
    assert counts(out) == {"done": 1, "failed": 1}
    (said,) = [line for line in first.stdout.splitlines() if "] failed" in line]
    assert "seed=1: exit status 137" in said

    again = psopt(*command, "--only", "failed", **deadly)
    assert again.returncode == 0, again.stdout + again.stderr
    (died,) = [log for log in out.glob("runs/*/*/log.txt") if "resumed at step" in log.read_text()]
    assert json.loads((died.parent / "assignment.json").read_text())["assignment"] == {"seed": 1}
    assert summaries(out)[1]["attempts"] == 2


def test_a_signal_stops_it_and_it_goes_on(tmp_path: Path) -> None:
    text = "fixed: {train.epochs: 2000, checkpoint.every_steps: 20}\nseeds: [1, 2, 3]\n"
    path, out = sweep_file(tmp_path / "files", text), tmp_path / "out"
    words = ["sweep", str(path), "--out", str(out), "--local", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "psopt", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        first = _saved(out)
        os.kill(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143
    assert "ended by SIGTERM; go on with: psopt sweep" in err
    found = standing_of(first)
    assert (found.state, found.reason) == (State.MISSING, "stopped before its end")
    assert counts(out) == {"missing": 3}
    listed = psopt("sweep", path, "--out", out, "--dry-run")
    assert f"{first.name}  seed=" in listed.stdout
    assert "goes on: stopped before its end" in listed.stdout
    assert "starts: not started" in listed.stdout


def _saved(out: Path) -> Path:
    """The directory of the first run that has a checkpoint, and is held."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for found in out.glob("runs/*/*/checkpoints/*.h5"):
            run = found.parent.parent
            if standing_of(run).state is State.RUNNING:
                return run
        time.sleep(0.1)
    raise AssertionError("no run has come to a checkpoint")


@pytest.mark.mpi
def test_real_ranks(tmp_path: Path) -> None:
    head = "name: ranks\nbase: job.yaml\nranks: 2\n"
    path = sweep_file(tmp_path / "files", "seeds: 2\n", head=head)
    done = psopt("sweep", path, "--out", tmp_path / "out", "--local", "--jobs", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    for summary in summaries(tmp_path / "out").values():
        assert (summary["crew"], summary["workers"], summary["status"]) == ("mpi", 1, "completed")


def test_not_under_mpirun(tmp_path: Path) -> None:
    done = psopt("sweep", sweep_file(tmp_path, ""), "--local", PMI_RANK="0")
    assert done.returncode == 2
    assert done.stderr.startswith("psopt: a sweep starts the ranks of its runs itself")


def test_a_page_with_the_speed_up_and_timelines(tmp_path: Path) -> None:
    text = "grid: {scheme: [{name: bsp}, {name: asp}], cluster.workers: [1, 2]}\n"
    path, out = sweep_file(tmp_path / "files", text), tmp_path / "out"
    assert psopt("sweep", path, "--out", out, "--local", "--jobs", 2).returncode == 0
    done = psopt("report", out, "--html")
    assert done.returncode == 0, done.stderr
    html = (out / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2>(.*?)</h2>", html) == [
        *("Results", "Curves", "Speed-up", "Timelines", "Environment")
    ]
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html)
    assert captions == ["scheme=bsp, cluster.workers=2", "scheme=asp, cluster.workers=2"]
    assert (out / "speedup.png").stat().st_size > 1000
