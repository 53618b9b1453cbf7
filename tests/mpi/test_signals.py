"""Who starts a job is killed or interrupted: the ranks end with it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mpi.ranks import Running, command, failing_job, launcher, module

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    ("scheme", "way", "number"),
    [
        ("asp", launcher, signal.SIGKILL),
        ("wasp", launcher, signal.SIGINT),
        ("collective", launcher, signal.SIGTERM),
        ("wasp", module, signal.SIGKILL),
        ("bsp", command, signal.SIGTERM),
        ("asp", module, signal.SIGINT),
    ],
)
def test_end_from_outside(
    scheme: str, way: Callable[[], list[str]], number: signal.Signals, tmp_path: Path
) -> None:
    job, out = failing_job(tmp_path, scheme, fault="have_child"), tmp_path / "run"
    with Running([*way(), job, "--out", out], tmp_path) as running:
        running.until_event()
        status = running.ends(running.send(number))
        said = running.said
    assert status != 0, said
    if way is launcher and number != signal.SIGKILL:
        assert f"psopt: ended by {number.name}\n" in said
        assert f"go on with: psopt run --resume {out}" in said
