from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from psopt.launch import slurm_checks
from psopt.launch.finding import Level
from psopt.launch.flavour import Flavour

OLD = "srun: MPI types are...\nsrun: none\nsrun: openmpi\nsrun: pmi2\n"
NEW = (
    "MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmi2\n\tpmix\n"
    "specific pmix plugin versions available: pmix_v3,pmix_v4\n"
)


@pytest.fixture(autouse=True)
def _only_fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(slurm_checks, "COMMANDS", tuple(f"fake-{n}" for n in ("sbatch", "srun")))


class TestCommands:
    def test_no_slurm(self) -> None:
        finding = slurm_checks.check_commands()
        assert finding.level is Level.OK
        assert "not on this machine" in finding.detail

    def test_half_of_it(self, fake_program: Callable[[str, str], Path]) -> None:
        fake_program("fake-srun", "")
        finding = slurm_checks.check_commands()
        assert finding.level is Level.WARN
        assert finding.detail == "not on PATH: fake-sbatch"

    def test_all_of_it(self, fake_program: Callable[[str, str], Path]) -> None:
        fake_program("fake-srun", "")
        fake_program("fake-sbatch", "")
        assert slurm_checks.check_commands().level is Level.OK


class TestSrun:
    @pytest.mark.parametrize(
        ("listing", "flavour", "level", "detail"),
        [
            (NEW, Flavour.MPICH, Level.OK, "use srun --mpi=pmi2 for MPICH"),
            (NEW, Flavour.OPENMPI, Level.OK, "use srun --mpi=pmix for Open MPI"),
            (NEW, Flavour.OTHER, Level.OK, "none, cray_shasta, pmi2, pmix, pmix_v3, pmix_v4"),
            (OLD, Flavour.MPICH, Level.OK, "(this Slurm has none, openmpi, pmi2)"),
            (OLD, Flavour.OPENMPI, Level.WARN, "Open MPI needs pmix"),
            ("", Flavour.MPICH, Level.WARN, "MPICH needs pmi2 or pmix or cray_shasta"),
        ],
    )
    def test_judge(self, listing: str, flavour: Flavour, level: Level, detail: str) -> None:
        finding = slurm_checks.judge(listing, flavour)
        assert finding.level is level
        assert detail in finding.detail

    @pytest.mark.parametrize("stream", ["1", "2"])
    def test_asks_srun(self, fake_program: Callable[[str, str], Path], stream: str) -> None:
        body = f'test "$*" = --mpi=list && printf "none\\npmi2\\n" >&{stream}'
        fake_program("srun", body)
        (finding,) = slurm_checks.check_srun(Flavour.MPICH)
        assert "--mpi=pmi2" in finding.detail

    def test_no_answer(
        self, fake_program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(slurm_checks, "_SECONDS", 0.2)
        fake_program("srun", "exec sleep 60")
        (finding,) = slurm_checks.check_srun(Flavour.MPICH)
        assert finding.level is Level.WARN
        assert "no answer" in finding.detail

    def test_no_srun(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert slurm_checks.check_srun(Flavour.MPICH) == []
