"""A rank that leaves in the middle ends the job: fast, with a status, a cause, and nothing left running."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mpi.ranks import HOST, Running, command, failing_job, launcher, module, run

pytestmark = pytest.mark.mpi

WHO = f"rank 1 (worker 0) on {HOST}"
KILLED = rf"psopt: {WHO}, process \d+, was killed by signal 9, SIGKILL"
RAISED = f"psopt: {WHO} failed, the job ends: RuntimeError: injected"
LEFT = rf"psopt: {WHO}, process \d+, left with status 0 before the job was complete"
EXITED = f"psopt: {WHO} failed, the job ends: sys.exit(0) before the job was complete"
IN_CHILD = rf"psopt: process \d+, a child of {WHO}, failed, the job ends: RuntimeError: injected"


def plain(text: str) -> str:
    """A text for `re.search`, where it is not one already."""
    return text.replace("(", r"\(").replace(")", r"\)")


CAUSES = {
    "fail": RAISED,
    "be_killed": KILLED,
    "sys_exit": EXITED,
    "os_exit": LEFT,
    "fail_in_child": IN_CHILD,
    "fail_with_child": RAISED,
    "be_killed_with_child": KILLED,
    "os_exit_with_far_child": LEFT,
}

Way = Callable[[], list[str]]


@pytest.mark.parametrize(
    ("fault", "scheme", "way"),
    [
        ("fail", "asp", launcher),
        ("fail", "wasp", module),
        ("fail", "collective", command),
        ("be_killed", "asp", module),
        ("be_killed", "bsp", launcher),
        ("be_killed", "collective", command),
        ("sys_exit", "wasp", launcher),
        ("sys_exit", "bsp", module),
        ("os_exit", "asp", command),
        ("os_exit", "collective", launcher),
        ("fail_in_child", "bsp", command),
        ("fail_in_child", "asp", launcher),
        ("fail_with_child", "wasp", command),
        ("be_killed_with_child", "collective", module),
        ("os_exit_with_far_child", "asp", module),
    ],
)
def test_worker_leaves(fault: str, scheme: str, way: Way, tmp_path: Path) -> None:
    job, out = failing_job(tmp_path, scheme, fault=fault), tmp_path / "run"
    with Running([*way(), job, "--out", out], tmp_path) as running:
        status = running.ends(running.until_event())
        said = running.said
    assert status != 0, said
    cause = CAUSES[fault]
    check(said, cause, out, resumable=way is launcher)
    raised = cause in (RAISED, IN_CHILD)
    assert said.count("Traceback (most recent call last)") == (cause in (RAISED, EXITED, IN_CHILD))
    assert ('raise RuntimeError("injected")' in said) == raised, said
    if cause in (RAISED, EXITED):
        summary = json.loads((out / "summary.json").read_text())
        assert summary["status"] == "failed"
        assert summary["reason"] == cause.removeprefix("psopt: ").replace(
            " failed, the job ends", ""
        )


@pytest.mark.parametrize(
    ("scheme", "way"), [("asp", launcher), ("wasp", command), ("collective", module)]
)
def test_coordinator_is_killed(scheme: str, way: Way, tmp_path: Path) -> None:
    job, out = failing_job(tmp_path, scheme), tmp_path / "run"
    with Running([*way(), job, "--out", out], tmp_path) as running:
        running.until_event()
        status = running.ends(running.send(signal.SIGKILL, running.pid(out, 0)))
        said = running.said
    assert status != 0, said
    cause = rf"psopt: rank 0 (coordinator) on {HOST}, process \d+, was killed by signal 9, SIGKILL"
    check(said, cause, out, resumable=way is launcher)


def check(said: str, cause: str, out: Path, *, resumable: bool) -> None:
    """The cause is named once, nobody else is blamed, and the way on is shown."""
    assert len(re.findall(plain(cause), said)) == 1, said
    blamed = re.findall(r"^psopt: .*(?:was killed|left with|failed, the job ends)", said, re.M)
    assert len(blamed) == 1, said
    assert f"run directory: {out}\n" in said.replace("\r", "")
    assert (f"go on with: psopt run --resume {out}" in said) == resumable, said


def test_ranks_that_do_not_meet(tmp_path: Path) -> None:
    """One never calls MPI_Init; the others wait in it, and no longer than they are to."""
    hangs = "import time; from psopt.crew.supervisor import supervise; supervise(); time.sleep(600)"
    never = [":", "-n", "1", sys.executable, "-c", hangs]
    words = [*module(1), failing_job(tmp_path, "asp"), "--out", tmp_path / "run", *never]
    status, said = run(words, tmp_path, environment={"PSOPT_MEETING_SECONDS": "3"})
    assert status != 0
    assert re.search(rf"psopt: rank 0 \(coordinator\) on {HOST}, process \d+: MPI has not", said)
    assert "together within 3 s: one of them is missing" in said
    assert not (tmp_path / "run").exists()
