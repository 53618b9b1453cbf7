from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import h5py
import pytest
import torch

from psopt.launch import checks
from psopt.launch.finding import Level


class TestTorch:
    def test_this_one(self) -> None:
        finding = checks.check_torch()
        assert finding.level is Level.OK
        assert torch.__version__ in finding.detail

    @pytest.mark.parametrize(
        ("version", "level"),
        [
            ("2.9.1+cu128", Level.FAIL),
            ("1.13.1", Level.FAIL),
            ("2.10.0", Level.OK),
            ("2.14a0+git12ab", Level.OK),
            ("3.0.0", Level.OK),
        ],
    )
    def test_age(self, monkeypatch: pytest.MonkeyPatch, version: str, level: Level) -> None:
        monkeypatch.setattr(torch, "__version__", version)
        finding = checks.check_torch()
        assert finding.level is level
        assert (level is Level.FAIL) == ("2.10 or newer" in finding.remedy)

    def test_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        finding = checks.check_torch()
        assert finding.level is Level.FAIL
        assert "pip install -U torch" in finding.remedy


class TestGpus:
    @pytest.fixture(autouse=True)
    def _one_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One device that is there, and computes on the CPU."""
        arange = torch.arange
        properties = SimpleNamespace(name="NVIDIA H200", total_memory=139 * 2**30)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
        monkeypatch.setattr(torch, "arange", lambda count, device: arange(count))

    def test_computes(self) -> None:
        finding = checks.check_gpus()
        assert finding.level is Level.OK
        assert finding.detail == "cuda:0 NVIDIA H200 139 GiB"

    def test_does_not_compute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(count: int, device: str) -> torch.Tensor:
            raise RuntimeError("CUDA error: no kernel image is available\nCompile with ...")

        monkeypatch.setattr(torch, "arange", fail)
        finding = checks.check_gpus()
        assert finding.level is Level.FAIL
        assert finding.detail.endswith("does not compute: CUDA error: no kernel image is available")

    def test_wrong_sum(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "arange", lambda count, device: torch.zeros(count))
        assert checks.check_gpus().level is Level.FAIL

    def test_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        finding = checks.check_gpus()
        assert finding.level is Level.OK
        assert "no CUDA device (CUDA_VISIBLE_DEVICES='')" in finding.detail

    def test_driver_too_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def warn() -> bool:
            import warnings

            warnings.warn("CUDA initialization: The NVIDIA driver is too old", stacklevel=1)
            return False

        monkeypatch.setattr(torch.cuda, "is_available", warn)
        finding = checks.check_gpus()
        assert finding.level is Level.WARN
        assert "driver is too old" in finding.detail


class TestCores:
    def test_plenty(self) -> None:
        finding = checks.check_cores({}, 10_000)
        assert finding.level is Level.OK
        assert "up to 10000 ranks" in finding.detail

    def test_one(self) -> None:
        assert checks.check_cores({}, 1).level is Level.WARN

    @pytest.mark.parametrize(
        ("environ", "level"),
        [
            ({"SLURM_NTASKS_PER_NODE": "8", "SLURM_NTASKS": "2"}, Level.WARN),
            ({"SLURM_NTASKS": "16", "SLURM_JOB_NUM_NODES": "4"}, Level.OK),
            ({"SLURM_NTASKS": "17", "SLURM_JOB_NUM_NODES": "4"}, Level.WARN),
            ({"SLURM_NTASKS": "5"}, Level.WARN),
            ({"SLURM_NTASKS": "many"}, Level.OK),
        ],
    )
    def test_slurm(self, environ: dict[str, str], level: Level) -> None:
        assert checks.check_cores(environ, 4).level is level


@pytest.mark.parametrize(
    ("value", "level"),
    [
        (None, Level.OK),
        ("1", Level.OK),
        ("4", Level.OK),
        ("2,1", Level.OK),
        ("5", Level.WARN),
        ("0", Level.WARN),
        ("", Level.WARN),
        ("all", Level.WARN),
        ("-1", Level.WARN),
    ],
)
def test_threads(value: str | None, level: Level) -> None:
    environ = {} if value is None else {"OMP_NUM_THREADS": value}
    assert checks.check_threads(environ, 4).level is level


class TestDisk:
    def test_writable(self, tmp_path: Path) -> None:
        finding = checks.check_disk(tmp_path)
        assert str(tmp_path) in finding.detail
        assert list(tmp_path.iterdir()) == []

    def test_little_room(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        usage = SimpleNamespace(free=100 << 20)
        monkeypatch.setattr(checks.shutil, "disk_usage", lambda directory: usage)
        finding = checks.check_disk(tmp_path)
        assert finding.level is Level.WARN
        assert "0.1 GiB free" in finding.detail

    def test_not_writable(self, tmp_path: Path) -> None:
        finding = checks.check_disk(tmp_path / "missing")
        assert finding.level is Level.FAIL
        assert "cannot write in" in finding.detail


class TestLocking:
    @pytest.mark.parametrize("value", [None, "TRUE", "BEST_EFFORT"])
    def test_works(self, tmp_path: Path, value: str | None) -> None:
        environ = {} if value is None else {"HDF5_USE_FILE_LOCKING": value}
        finding = checks.check_locking(environ, tmp_path)
        assert finding.level is Level.OK
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("value", ["false", "no", "OFF", ""])
    def test_a_value_that_hdf5_ignores(self, tmp_path: Path, value: str) -> None:
        finding = checks.check_locking({"HDF5_USE_FILE_LOCKING": value}, tmp_path)
        assert finding.level is Level.WARN
        assert "HDF5_USE_FILE_LOCKING=FALSE" in finding.remedy

    def test_a_file_system_without_locks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(path: Path, mode: str) -> h5py.File:
            raise BlockingIOError(11, "unable to lock file, errno = 11")

        monkeypatch.setattr(h5py, "File", fail)
        finding = checks.check_locking({}, tmp_path)
        assert finding.level is Level.FAIL
        assert finding.remedy == "export HDF5_USE_FILE_LOCKING=FALSE"


def test_the_checks_change_no_environment(tmp_path: Path) -> None:
    before = dict(os.environ)
    checks.check_locking({}, tmp_path)
    checks.check_disk(tmp_path)
    assert dict(os.environ) == before
