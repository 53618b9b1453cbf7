from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from psopt.launch.flavour import (
    Flavour,
    MpirunError,
    detect_flavour,
    find_mpirun,
    flavour_of,
    mpirun_argv,
)

VERSIONS = [
    ("HYDRA build details:\n    Version:       5.0.2\n    CC:   cc", Flavour.MPICH),
    ("Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240515", Flavour.MPICH),
    ("Version: mvapich2-2.3.7", Flavour.MPICH),
    ("mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/", Flavour.OPENMPI),
    ("mpiexec (OpenRTE) 4.1.2", Flavour.OPENMPI),
    ("prterun (PRRTE) 3.0.6", Flavour.OPENMPI),
    ("mpirun (IBM Spectrum MPI) 10.3.0.1", Flavour.OPENMPI),
    ("slurm 22.05.8", Flavour.OTHER),
    ("mpiexec: unrecognized option '--version'", Flavour.OTHER),
    ("", Flavour.OTHER),
]


@pytest.mark.parametrize(("text", "flavour"), VERSIONS)
def test_flavour_of(text: str, flavour: Flavour) -> None:
    assert flavour_of(text) is flavour


@pytest.mark.parametrize(
    ("flavour", "as_root", "options"),
    [
        (Flavour.MPICH, True, []),
        (Flavour.OTHER, True, []),
        (Flavour.OPENMPI, False, ["--oversubscribe", "--bind-to", "none"]),
        (Flavour.OPENMPI, True, ["--oversubscribe", "--bind-to", "none", "--allow-run-as-root"]),
    ],
)
def test_argv(flavour: Flavour, as_root: bool, options: list[str]) -> None:
    path = "/opt/my mpi (new)/bin/mpirun"
    argv = mpirun_argv(Path(path), flavour, 3, as_root=as_root)
    assert argv == [path, *options, "-n", "3"]


@pytest.mark.parametrize("ranks", [0, -1])
def test_argv_refuses_no_ranks(ranks: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1 rank, not {ranks}"):
        mpirun_argv(Path("mpirun"), Flavour.MPICH, ranks)


class TestFind:
    @pytest.fixture
    def interpreter(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An environment's interpreter that is a link, as in a virtual environment."""
        path = tmp_path / "env" / "python"
        path.parent.mkdir()
        path.symlink_to(sys.executable)
        monkeypatch.setattr(sys, "executable", str(path))
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        return path

    def test_beside_the_interpreter_wins_over_path(
        self, interpreter: Path, fake_program: Callable[[str, str], Path]
    ) -> None:
        other = fake_program("mpirun", "")
        beside = interpreter.parent / "mpiexec"
        beside.write_bytes(other.read_bytes())
        beside.chmod(0o755)
        assert find_mpirun() == beside

    @pytest.mark.parametrize("name", ["mpirun", "mpiexec"])
    def test_path(
        self, interpreter: Path, fake_program: Callable[[str, str], Path], name: str
    ) -> None:
        mpirun = fake_program(name, "")
        assert find_mpirun() == mpirun

    def test_a_file_that_is_no_program_is_passed_over(
        self, interpreter: Path, fake_program: Callable[[str, str], Path]
    ) -> None:
        (interpreter.parent / "mpirun").write_text("notes")
        mpirun = fake_program("mpirun", "")
        assert find_mpirun() == mpirun

    def test_none(self, interpreter: Path) -> None:
        with pytest.raises(MpirunError, match=r"pip install 'psopt\[mpich\]'"):
            find_mpirun()


class TestDetect:
    def test_stderr_counts_too(self, fake_program: Callable[[str, str], Path]) -> None:
        mpirun = fake_program("mpirun", "echo 'mpirun (Open MPI) 4.0.0' >&2")
        assert detect_flavour(mpirun) is Flavour.OPENMPI

    def test_a_wrapper_without_version(self, fake_program: Callable[[str, str], Path]) -> None:
        assert detect_flavour(fake_program("mpirun", "exit 2")) is Flavour.OTHER

    def test_hangs(self, fake_program: Callable[[str, str], Path]) -> None:
        with pytest.raises(MpirunError, match=r"no answer within 0\.2 s"):
            detect_flavour(fake_program("mpirun", "exec sleep 60"), seconds=0.2)

    def test_not_a_program(self, tmp_path: Path) -> None:
        path = tmp_path / "mpirun"
        path.write_text("\x7fnot an executable")
        path.chmod(0o755)
        with pytest.raises(MpirunError, match="cannot execute"):
            detect_flavour(path)
