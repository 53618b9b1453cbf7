"""How a process that computes is set up."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from psopt.crew import process
from psopt.crew.process import short_addresses

PMI2 = {"SLURM_MPI_TYPE": "pmi2", "PMI_FD": "11"}


@pytest.mark.parametrize(
    ("environ", "wheel", "chosen"),
    [
        (PMI2, True, "ofi"),
        (PMI2, False, None),  # of another MPICH nobody knows what it was built with
        ({**PMI2, "MPIR_CVAR_CH4_NETMOD": "ucx"}, True, "ucx"),
        ({"PMI_FD": "11"}, True, None),  # Hydra's own
        ({"SLURM_MPI_TYPE": "pmix", "PMIX_RANK": "0"}, True, None),
        ({}, True, None),
    ],
)
def test_addresses_that_slurms_pmi_can_take(
    environ: dict[str, str], wheel: bool, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def distribution(name: str) -> str:
        if name != "mpich" or not wheel:
            raise PackageNotFoundError(name)
        return name

    monkeypatch.setattr(process, "distribution", distribution)
    own = dict(environ)
    short_addresses(own)
    assert own.get("MPIR_CVAR_CH4_NETMOD") == chosen
