"""The world of ranks."""

from __future__ import annotations

import re

import pytest

from tests.crew.ranks import RanksError, run_ranks

pytestmark = pytest.mark.mpi


def test_ranks_agree_and_sleep_until_they_can() -> None:
    """Whatever the value's size; a worker that waits while rank 0 prepares leaves its core to others."""
    said = run_ranks(3, ["-m", "tests.crew.agree_job"], seconds=120)
    shares = [float(share) for share in re.findall(r"share (\d+\.\d{3})", said)]
    assert len(shares) == 2, said
    assert max(shares) < 0.3, said


def test_ranks_that_hang_in_finalize_are_ended() -> None:
    """Nothing is left of them; mpirun may call that an error, and the launcher goes by the run's record."""
    try:
        said = run_ranks(3, ["-m", "tests.crew.hang_job"], seconds=60)
    except RanksError as ended:
        said = str(ended)
        assert ": status " in said, said
    assert said.count("done") == 3, said  # ranks may print into each other's lines
    assert "left behind" not in said
