"""A cluster whose commands begin with yh, and where there is no sbatch: shims in front of a real Slurm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from psopt.record import BatchFiles, RunDirectory, Submission
from tests.slurm.cluster import Cluster, until

pytestmark = pytest.mark.slurm
NAMES = {
    "yhbatch": "sbatch",
    "yhrun": "srun",
    "yhqueue": "squeue",
    "yhcancel": "scancel",
    "yhacct": "sacct",
    "yhcontrol": "scontrol",
}
TINY = ("train.epochs=1", "train.batch_size=50", "data.train_limit=400", "data.test_limit=50")


@dataclass(frozen=True)
class YhCluster:
    """The cluster, and a directory with all commands of this host but Slurm's own names."""

    slurm: Cluster
    bin: Path

    def psopt(self, *words: object) -> subprocess.CompletedProcess[str]:
        given = (sys.executable, "-m", "psopt", *map(str, words))
        return self.slurm.run(*given, path=str(self.bin))


@pytest.fixture(scope="module")
def yh(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> YhCluster:
    folder = tmp_path_factory.mktemp("bin")
    for name, real in NAMES.items():
        path = shutil.which(real)
        assert path is not None
        (folder / name).write_text(f'#!/bin/sh\nexec {path} "$@"\n')
        (folder / name).chmod(0o755)
    for place in ("/usr/bin", "/bin", str(Path(sys.executable).parent)):
        for path in map(Path, (entry.path for entry in os.scandir(place))):
            known = path.name in {*NAMES.values(), "sinfo", "salloc"}
            if not known and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return YhCluster(slurm, folder)


def test_a_job_to_its_end(yh: YhCluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["submit", "configs/lenet5_wasp.yaml", "--out", run]
    changes = (*TINY, "batch.nodes=3", "batch.modules=[]")
    words += [word for change in changes for word in ("--set", change)]
    refused = yh.psopt(*words)
    assert refused.returncode == 2
    assert "tianhe2 wants a partition from every job" in refused.stderr
    done = yh.psopt(*words, "--set", "batch.partition=work")
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    assert job.isdecimal()
    submission = Submission.read(run)
    assert submission is not None
    assert (submission.job, submission.site) == (job, "tianhe2")
    assert {submission.commands.submit, submission.commands.control} == {"yhbatch", "yhcontrol"}
    log = BatchFiles(run).directory / f"{job}.log"
    assert yh.slurm.wait(job, log) == "COMPLETED", log.read_text()
    summary = RunDirectory.open(run).read_summary()
    assert summary is not None
    assert summary["status"] == "completed"
    assert yh.psopt("status", run).returncode == 0


def test_the_queue_is_asked(yh: YhCluster, tmp_path: Path) -> None:
    """A job that is cancelled before it starts is known by what the controller remembers."""
    run = tmp_path / "run"
    words = ["submit", "configs/lenet5_wasp.yaml", "--out", run, "--set", "batch.modules=[]"]
    words += ["--set", "batch.partition=work", "--", "--hold"]
    job = yh.psopt(*words).stdout.strip()
    shown = json.loads(yh.psopt("status", run, "--json").stdout)["runs"][0]
    assert shown["state"] == "blocked"
    yh.slurm.call("scancel", job)
    until(yh.slurm, lambda: yh.slurm.state(job) == "CANCELLED")
    shown = json.loads(yh.psopt("status", run, "--json").stdout)["runs"][0]
    assert (shown["state"], shown["reason"]) == (
        "failed",
        f"job {job}: it was cancelled (CANCELLED)",
    )
