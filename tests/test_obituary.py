"""What a supervisor says of a rank's end, the launcher understands."""

from __future__ import annotations

import pytest

from psopt.obituary import Death, death_in, obituary


@pytest.mark.parametrize("rank", [0, 1, 1024])
@pytest.mark.parametrize("code", [-9, -11, -34, 0, 3])
def test_what_is_said_is_understood(rank: int, code: int) -> None:
    said = obituary(str(rank), 4711, code, fatal=True).encode()
    death = Death(rank, -code if code < 0 else None)
    assert death_in(said) == death
    assert death_in(b"[1,2]<stderr>: 10 %\r" + said + b"\r") == death


def test_others_are_no_end_of_the_job() -> None:
    """A loss that is survived, a rank that nobody knows, another line."""
    assert death_in(obituary("1", 4711, -9, fatal=False).encode()) is None
    assert death_in(obituary(None, 4711, -9, fatal=True).encode()) is None
    assert death_in(b"psopt: rank 1 (worker 0) on host failed, the job ends: KeyError") is None


def test_words() -> None:
    assert "psopt: rank 0 (coordinator) on " in obituary("0", 4711, -11, fatal=True)
    text = obituary("2", 4711, -9, fatal=True)
    assert "rank 2 (worker 1) on " in text
    assert "process 4711, was killed by signal 9, SIGKILL (if nobody sent it" in text
    assert "psopt: a rank on " in obituary(None, 4711, 0, fatal=True)
