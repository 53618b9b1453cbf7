"""What users write by mistake: found before training with status 2, or ended as what it is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch

from psopt.record import CheckpointStore, RunDirectory
from tests.commands import call, no_rank, refused
from tests.training import ROOT, job_file, tiny

__all__ = ["no_rank"]


def model(name: str) -> dict[str, Any]:
    return {"model": {"factory": f"tests.wicked:{name}"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (model("raises"), "tests.wicked:raises with {'outputs': 3}: KeyError: 'nothing' ("),
        (model("leaves_at_once"), "SystemExit: 0"),
        ({"loss": {"factory": "tests.wicked:constant_loss"}}, "does not depend on any parameter"),
        ({"loss": {"factory": "tests.wicked:number_loss"}}, "the loss is float; it must be a ten"),
        ({"optimizer": {"name": "Muon", "lr": 0.1}}, "optimizer Muon does not fit the model: "),
        (
            model("fails_in_training") | {"train": {"epochs": 1, "batch_size": 19}},  # 20 rows
            "fails on the first samples of .* more than 1 value per channel",
        ),
    ],
)
def test_found_before_training(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path), **changes), tmp_path / "run"
    said = refused("run", path, "--simulate", "--out", run)
    assert message in said or re.search(message, said)
    assert not run.exists()


@pytest.mark.parametrize(
    "change",
    [
        "device.threads=100000",
        "cluster.workers=10000000000",
        "cluster.compute.mean=1e308",
        "cluster.latency=1e308",
        "cluster.bandwidth=1e-308",
        "cluster.server_cost=1e308",
        "cluster.stragglers={0: 1e308}",
        *([] if torch.cuda.is_available() else ["device.kind=cuda"]),
    ],
)
def test_impossible_values(change: str, tmp_path: Path) -> None:
    path = job_file(tmp_path, tiny(tmp_path))
    assert refused("run", path, "--simulate", "--out", tmp_path / "run", "--set", change)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": {"name": "Adam", "lr": 1e308}},  # finite gradients, infinite parameters
        {"loss": {"factory": "tests.wicked:infinite_loss"}},
    ],
)
@pytest.mark.parametrize("scheme", ["asp", "bsp", "collective"])
def test_what_is_not_finite_is_diverged(
    changes: dict[str, Any], scheme: str, tmp_path: Path
) -> None:
    """Whatever the way to it; and no checkpoint holds it."""
    name = {"name": "bsp", "exchange": "collective"} if scheme == "collective" else {"name": scheme}
    every = {"checkpoint": {"every_steps": 1}, "stop": {"steps": 2}}
    path = job_file(tmp_path, tiny(tmp_path), scheme=name, **changes, **every)
    status, out, _ = call("run", path, "--simulate", "--out", tmp_path / "run")
    assert (status, "diverged" in out) == (3, True)
    run = RunDirectory.open(tmp_path / "run")
    summary = run.read_summary()
    assert summary is not None
    assert summary["status"] == "diverged"
    for saved in CheckpointStore(run.checkpoints, 3).paths():
        with h5py.File(saved) as file:
            assert all(torch.tensor(p[:]).isfinite().all() for p in file["parameters"].values())


def test_leaving_in_the_middle_is_a_failure(tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path), **model("leaves")), tmp_path / "run"
    status, _, err = call("run", path, "--simulate", "--out", run)
    assert (status, err) == (1, "psopt: sys.exit(0) before the job was complete\n")
    assert '"status": "failed"' in (run / "summary.json").read_text()


def test_a_run_whose_end_cannot_be_saved_has_failed(tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").write_text("a file")
    status, out, _ = call("run", "--resume", run)
    assert status == 1
    assert "a trial before training was not saved" in out


def test_two_at_once(tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    held = RunDirectory.open(run).hold()
    assert "another process runs in it" in refused("run", "--resume", run)
    empty = tmp_path / "empty"
    empty.mkdir()
    other = RunDirectory(empty).hold()
    assert "another process runs in it" in refused("run", path, "--simulate", "--out", empty)
    other.release()
    held.release()
    assert call("run", "--resume", run)[0] == 0


@pytest.mark.parametrize("torn", ['{"started": "20', "\0\0", ""])
def test_a_torn_line_of_attempts(torn: str, tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    with (run / "attempts.jsonl").open("a") as file:
        file.write(torn)
    assert call("run", "--resume", run)[0] == 0
    assert len((run / "attempts.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["attempts.jsonl", "metrics.jsonl"])
def test_a_damaged_record(name: str, tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    (run / name).write_text("garbage\n" + (run / name).read_text())
    assert f"{name}:1: not JSON" in refused("run", "--resume", run)
    assert (run / "summary.json").exists()


def test_slots_stay_what_they_were(tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    assert "scheme.slots was fixed at 2" in refused(
        "run", "--resume", run, "--set", "scheme.slots=5"
    )


def test_export_to_nowhere(tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    assert "where.pt: cannot be written: No such file" in refused(
        "export", run, tmp_path / "no" / "where.pt"
    )


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    """`psopt run ... | head -1`."""
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    words = [sys.executable, "-m", "psopt", "run", path, "--simulate", "--out", run]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout is not None
        job.stdout.close()
        assert job.stderr is not None
        assert job.stderr.read() == b""
    assert job.returncode == 0
    assert '"status": "completed"' in (run / "summary.json").read_text()


def test_a_model_that_lies_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command finds it as `python -m` would."""
    code = "from torch import nn\ndef build(outputs): return nn.Linear(6, outputs)\n"
    (tmp_path / "mynet.py").write_text(code)
    path = job_file(tmp_path, tiny(tmp_path), model={"factory": "mynet:build"})
    command = Path(sys.executable).with_name("psopt")
    subprocess.run([command, "validate", path], cwd=tmp_path, check=True, capture_output=True)
    missing = path.read_text().replace("mynet:build", "mynot:build")
    (tmp_path / "bad.yaml").write_text(missing)
    monkeypatch.chdir(tmp_path)
    assert "model.factory: model factory mynot:build: cannot import" in refused(
        "validate", "bad.yaml"
    )
