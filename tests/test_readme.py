"""The README keeps its word: its commands run, in their order, and its job file is valid."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from psopt import job
from psopt.sweep.plan import plan

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEADLINE = 120.0


def blocks(marker: str) -> list[list[str]]:
    """The lines of each fenced block that follows the marker."""
    found = re.findall(rf"<!-- {re.escape(marker)} -->\n```sh\n(.*?)```", README, re.DOTALL)
    return [[line for line in block.splitlines() if line.strip()] for block in found]


def test_quickstart_is_one_command_each() -> None:
    assert blocks("quickstart:run") == [["make quickstart"]]
    assert blocks("quickstart:test") == [["make test"]]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^quickstart:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)


def test_the_job_file_shown_is_valid(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "shown.yaml"
    path.write_text(text, encoding="utf-8")
    assert job.load(path).scheme.name == "wasp"


def test_the_sweep_file_shown_is_valid(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yml\n(.*?)```", README, re.DOTALL)
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    path = tmp_path / "configs" / "sweeps" / "shown.yaml"
    path.write_text(text, encoding="utf-8")
    assert len(plan(path).runs) == 3 * 2 * 3 * 2


def test_files_shown_exist() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.mpi
def test_the_tour(tmp_path: Path) -> None:
    commands = [line for block in blocks("test") for line in block]
    assert len(commands) >= 9
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    digits(tmp_path / "mnist")
    bin_directory = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    for name in ("runs/report/report.png", "runs/report/staleness.png", "lenet5.safetensors"):
        assert (tmp_path / name).stat().st_size > 10_000, name


def digits(folder: Path) -> None:
    """A small MNIST directory of IDX files."""
    folder.mkdir()
    generator = np.random.default_rng(1)
    for name, count in (("train", 256), ("t10k", 100)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
            (folder / f"{name}-{kind}-ubyte").write_bytes(head + values.tobytes())
