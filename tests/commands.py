"""Calls of the `psopt` command in this process."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from psopt.cli import app

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_ID")


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run inside of a batch job."""
    for variable in RANK_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def call(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def refused(*arguments: object) -> str:
    """What is said on standard error by a command that is refused."""
    status, out, err = call(*arguments)
    assert status == 2, err
    assert out == ""
    assert "Traceback" not in err
    return err
