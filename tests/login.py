"""A login node of a cluster, with small programs in the place of Slurm's; and a run that goes on on this host."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from psopt.record import BatchFiles, Commands, Submission
from tests.training import ROOT, job_file, tiny

QUEUE = """
printf '%s ' "$@" >> "$TOLD/queue"; echo >> "$TOLD/queue"
[ -e "$TOLD/states" ] || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }
cat "$TOLD/states"
"""
DEADLINE = 120.0


class Login:
    """A login node: programs on PATH, what they were told, and a run that was submitted as job 12."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.told, self.run = folder / "bin", folder / "told", folder / "run"
        self.told.mkdir()
        self.bin.mkdir()
        self.program("sbatch", """printf '%s\\0' "$@" >> "$TOLD/submit"; echo 14""")
        self.program("scancel", """printf '%s ' "$@" >> "$TOLD/cancel"; echo >> "$TOLD/cancel" """)
        self.program("squeue", QUEUE)
        self.submitted(self.run)

    def program(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def queue(self, *lines: str) -> None:
        """What squeue says."""
        (self.told / "states").write_text("".join(f"{line}\n" for line in lines))

    def submitted(self, run: Path, job: str = "12", cluster: str | None = None) -> None:
        files = BatchFiles(run)
        files.directory.mkdir(parents=True)
        files.script.write_text("true\n")
        commands = Commands("sbatch", "srun", "squeue", "scancel", "sacct", "scontrol")
        command = ("sbatch", "--parsable", "--exclusive", str(files.script))
        script = str(files.script)
        Submission(job, cluster, "slurm", commands, "then", script, command).write(run)

    def says(self, name: str) -> str:
        path = self.told / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    return Login(tmp_path)


@contextmanager
def going_on(folder: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A run on the virtual cluster that does not end by itself, after its first checkpoint."""
    checkpoint, train = {"every_steps": 2}, {"epochs": 100_000, "batch_size": 2}
    path = job_file(folder, tiny(folder), checkpoint=checkpoint, train=train)
    words = [sys.executable, "-m", "psopt", "run", str(path), "--simulate", "--out"]
    with subprocess.Popen(
        [*words, str(folder / "run")],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            deadline = time.monotonic() + DEADLINE
            while not [*(folder / "run" / "checkpoints").glob("step-*.h5")]:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield folder / "run", process
        finally:
            process.kill()
