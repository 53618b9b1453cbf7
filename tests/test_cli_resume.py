"""`psopt run --resume`, and what happens to checkpoints on a bad disk, without ranks."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import h5py
import pytest

from psopt import job
from psopt.record import EXITS, read_metrics
from psopt.request import Request
from psopt.running import simulate
from psopt.stopping import StopRequest
from tests.commands import call, no_rank, refused
from tests.training import job_file, psopt, tiny

__all__ = ["no_rank"]


def test_resume_refuses_what_is_no_run(tmp_path: Path) -> None:
    for options in ([], ["-n", 3], ["--simulate"]):
        assert "no such directory" in refused("run", "--resume", tmp_path / "none", *options)
        assert "not a run directory" in refused("run", "--resume", tmp_path, *options)


def sha(run: Path) -> str:
    text: str = json.loads((run / "summary.json").read_text())["parameters_sha256"]
    return text


def test_simulated_run_resumes_as_one(tmp_path: Path) -> None:
    """`--resume` alone goes on with the virtual cluster."""
    checkpoint = {"every_steps": 2, "keep": 9}
    path = job_file(
        tmp_path, tiny(tmp_path), checkpoint=checkpoint, train={"epochs": 4, "batch_size": 4}
    )
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert call("run", path, "--simulate", "--out", whole)[0] == 0
    first = ("run", path, "--simulate", "--out", run, "--set", "stop.steps=5")
    assert call(*first)[0] == 0
    assert sha(run) != sha(whole)
    status, text, _ = call("run", "--resume", run, "--set", "stop.steps=null")
    assert status == 0
    assert "resumed at step 5" in text
    assert sha(run) == sha(whole)
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["crew"], summary["attempts"], summary["samples"]) == ("simulated", 2, 80)
    steps = [row["step"] for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "step"]
    assert steps == list(range(1, 13))


def test_a_run_goes_on_with_its_kind_of_workers(tmp_path: Path) -> None:
    """Virtual seconds and those of a clock do not add up."""
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    before = (run / "config.yaml").read_text()
    assert "one on the virtual cluster" in refused("run", "--resume", run, "-n", 3)
    attempts = run / "attempts.jsonl"
    attempts.write_text(attempts.read_text().replace('"simulated"', '"mpi"'))
    assert "one on MPI ranks" in refused("run", "--resume", run, "--simulate")
    assert (run / "config.yaml").read_text() == before


def test_a_resume_with_nothing_left_says_so(tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run, "--set", "stop.steps=3")[0] == 0
    status, text, _ = call("run", "--resume", run, "--set", "train.epochs=9")
    assert status == 0
    assert "there was nothing left to do: steps had been reached" in text
    outcomes = [x for x in (run / "log.txt").read_text().splitlines() if x.startswith("completed")]
    assert [x.partition(": ")[0] for x in outcomes] == ["completed (steps)"] * 2


def test_a_resume_that_is_stopped_before_its_first_step(tmp_path: Path) -> None:
    """There is something left to do, and it will be done as this resume was told."""
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run, "--set", "stop.steps=3")[0] == 0
    stop = StopRequest()
    stop.received = signal.SIGUSR2
    request = Request(None, run, None, ("stop.steps=4",))
    assert simulate(request.prepare(None), stop) == EXITS["stopped"]
    log = (run / "log.txt").read_text()
    assert "nothing left to do" not in log
    assert log.splitlines()[-1].startswith("stopped (SIGUSR2): 3 steps")
    assert job.load(run / "config.yaml").stop.steps == 4


def test_resume_past_a_truncated_checkpoint(tmp_path: Path) -> None:
    checkpoint = {"every_steps": 1, "keep": 9}
    path, run = job_file(tmp_path, tiny(tmp_path), checkpoint=checkpoint), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    expected = sha(run)
    newest = sorted((run / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:5000])
    done = psopt("run", "--resume", run)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for said in (done.stdout, (run / "log.txt").read_text()):
        (line,) = (line for line in said.splitlines() if "truncated or damaged" in line)
        assert line.startswith(f"warning: {newest}: truncated or damaged")
        assert line.endswith("; it is skipped")
    assert "resumed at step 5" in done.stdout
    assert sha(run) == expected


def test_resume_without_a_checkpoint_begins_again(tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    expected = sha(run)
    for checkpoint in (run / "checkpoints").iterdir():
        checkpoint.unlink()
    status, text, _ = call("run", "--resume", run)
    assert status == 0
    assert "no checkpoint to resume from" in text
    assert sha(run) == expected
    steps = [row["step"] for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "step"]
    assert steps == list(range(1, 7))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.batch_size=2", "batch_size 4, this one has 2"),
        ("seed=9", "seed 1, this one has 9"),
        ("model.name=mlp", 'model.name is "mlp", and was "softmax"'),
        ("model.kwargs={bias: false}", 'model.kwargs is {"bias": false}, and was {}'),
        ("model.dtype=float64", 'model.dtype is "float64", and was "float32"'),
        ("scheme={name: asp}", 'scheme.name is "asp", and was "bsp"'),
        ("loss.name=mse", 'loss.name is "mse", and was "cross_entropy"'),
        ("loss.kwargs={label_smoothing: 0.1}", 'loss.kwargs is {"label_smoothing": 0.1}'),
        ("loss.l2=0.5", "loss.l2 is 0.5, and was 0.0"),
        ("data.classes=[2, 1, 0]", "data.classes is [2, 1, 0], and was null"),
        ("data.train_limit=20", "data.train_limit is 20, and was null"),
        ("data.normalise=false", "data.normalise is false, and was true"),
        ("optimizer.lr=0.5", "optimizer and the schedule of its checkpoint"),
    ],
)
def test_resume_refuses_another_job_and_leaves_the_run_alone(
    change: str, message: str, tmp_path: Path
) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    assert message in refused("run", "--resume", run, "--set", change)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before
    assert call("run", "--resume", run)[0] == 0


METHODS = {
    "dane": {"shards": 2, "mu": 0.1},
    "aide": {"shards": 2, "tau": 0.5},
    "admm": {"shards": 2, "rho": 0.5},
    "giant": {"shards": 2},
    "sandblaster": {"batch": 8},
    "lbfgs_static": {"memory": 2},
    "cg": {"batch": 8},
}


def batch_job(folder: Path, scheme: dict[str, Any], steps: int) -> Path:
    return job_file(
        folder, tiny(folder), optimizer=None, scheme=scheme, stop={"steps": steps}, train=LONG
    )


LONG = {"epochs": 100_000, "batch_size": 4}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("dane", "mu=0.3", "scheme.mu is 0.3, and was 0.1"),
        ("dane", "cut=by_label", 'scheme.cut is "by_label", and was "iid"'),
        ("dane", "shards=3", "scheme.shards was fixed at 2"),
        ("dane", "local.passes=7", "scheme.local is {"),
        ("aide", "tau=0.1", "scheme.tau is 0.1, and was 0.5"),
        ("admm", "rho=2.0", "scheme.rho is 2.0, and was 0.5"),
        ("sandblaster", "batch=null", "scheme.batch is null, and was 8"),
        ("sandblaster", "batch=4", "scheme.batch is 4, and was 8"),
        ("cg", "iterations=3", "scheme.iterations is 3, and was 1"),
        ("cg", "beta=hager-zhang", 'scheme.beta is "hager-zhang", and was "pr+"'),
    ],
)
def test_resume_refuses_another_method(name: str, change: str, said: str, tmp_path: Path) -> None:
    path, run = batch_job(tmp_path, {"name": name, **METHODS[name]}, 4), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    text = refused("run", "--resume", run, "--set", f"scheme.{change}", "--set", "stop.steps=6")
    assert said in text
    assert len(text.splitlines()) == 1
    assert call("run", "--resume", run, "--set", "stop.steps=6")[0] == 0


@pytest.mark.parametrize(("name", "reached"), [("dane", 0.3), ("aide", 0.3), ("lbfgs_static", 0.3)])
def test_resume_with_a_closer_tolerance_goes_on(name: str, reached: float, tmp_path: Path) -> None:
    """From where the run had converged, with the steps of a run that never stopped there."""
    scheme = {"name": name, **METHODS[name], "gradient_tolerance": reached}
    path, run, whole = batch_job(tmp_path, scheme, 9), tmp_path / "run", tmp_path / "whole"
    assert "completed (converged (gradient))" in call("run", path, "--simulate", "--out", run)[1]
    assert "nothing left to do" in call("run", "--resume", run)[1]
    closer = ("--set", "scheme.gradient_tolerance=1e-12")
    assert call("run", "--resume", run, *closer)[0] == 0
    assert call("run", path, "--simulate", "--out", whole, *closer)[0] == 0
    assert sha(run) == sha(whole)


@pytest.mark.parametrize("memory", [2, 5])
def test_resume_with_another_memory(memory: int, tmp_path: Path) -> None:
    """The ring of pairs has come round by then."""
    scheme = {"name": "lbfgs_static", "memory": 3}
    path, run = batch_job(tmp_path, scheme, 9), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    more = ("--set", f"scheme.memory={memory}", "--set", "stop.steps=19")
    assert call("run", "--resume", run, *more)[0] == 0
    values = [r["objective"] for r in read_metrics(run / "metrics.jsonl") if r["kind"] == "step"]
    assert values[-1] < 0.5 * values[8]


def test_resume_takes_what_leaves_the_problem_alone(tmp_path: Path) -> None:
    """A data set that has moved, more or less memory for it, another look at the test rows."""
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    expected, moved = sha(run), (tmp_path / "tiny.h5").rename(tmp_path / "moved.h5")
    changes = (f"data.path={moved}", "data.cache_bytes=0", "data.test_limit=4")
    options = [word for change in changes for word in ("--set", change)]
    assert call("run", "--resume", run, *options)[0] == 0
    assert sha(run) == expected


SIZE = 12_000
"""Bytes: less than a checkpoint of the model has, and more than everything else."""
FILLING = {"factory": "tests.wicked:disk_that_fills", "kwargs": {"size": SIZE}}


def test_a_disk_that_fills_is_loud_and_training_goes_on(tmp_path: Path) -> None:
    """A limit on the size of files, after the training has begun."""
    path = job_file(tmp_path, tiny(tmp_path), model=FILLING, checkpoint={"every_steps": 2})
    run = tmp_path / "run"
    done = psopt("run", path, "--simulate", "--out", run)
    assert done.returncode == 1, done.stderr  # the result is nowhere
    for step in (2, 4, 6):
        assert f"warning: checkpoint at step {step} failed" in done.stdout
    assert "File too large" in done.stdout
    assert "failed (checkpoint at step 6 failed: " in done.stdout
    assert "checkpoint at step 6 failed" in (run / "log.txt").read_text()
    assert list((run / "checkpoints").iterdir()) == []


@pytest.mark.parametrize("scheme", ["bsp", "wasp", "dane", "aide", "admm", "sandblaster", "cg"])
def test_a_full_disk_is_found_before_training(scheme: str, tmp_path: Path) -> None:
    """By a trial checkpoint, of a new run and of one that goes on."""
    model = {"name": "mlp", "kwargs": {"hidden": [200, 100]}}
    changes = {"scheme": {"name": scheme}, "model": model, "stop": {"steps": 1}, "train": LONG}
    path, run = job_file(tmp_path, tiny(tmp_path), **changes), tmp_path / "run"
    limited = tmp_path / "limited"
    limited.mkdir()
    (limited / "sitecustomize.py").write_text(
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
    )
    done = psopt("run", path, "--simulate", "--out", run, PYTHONPATH=str(limited))
    assert (done.returncode, done.stderr) == (1, ""), done.stderr
    said = "a trial before training was not saved"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["steps"]) == ("failed", 0)
    assert said in summary["reason"]
    assert "File too large" in summary["reason"]
    assert list((run / "checkpoints").iterdir()) == []
    assert call("run", "--resume", run)[0] == 0
    (saved,) = (run / "checkpoints").iterdir()
    again = psopt("run", "--resume", run, "--set", "stop.steps=2", PYTHONPATH=str(limited))
    assert again.returncode == 1
    assert said in again.stdout
    assert list((run / "checkpoints").iterdir()) == [saved]
    assert call("run", "--resume", run, "--set", "stop.steps=2")[0] == 0


def test_changes_are_on_record(tmp_path: Path) -> None:
    """And where nothing is left to do, the job file stays that of the steps that were made."""
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run, "--set", "stop.steps=4")[0] == 0
    made = (run / "config.yaml").read_text()
    clip = ("--set", "train.clip_norm=0.5")
    _, text, _ = call("run", "--resume", run, *clip)
    assert "nothing left to do" in text
    assert (run / "config.yaml").read_text() == made
    assert call("run", "--resume", run, *clip, "--set", "stop.steps=6")[0] == 0
    assert "clip_norm: 0.5" in (run / "config.yaml").read_text()
    assert [row.get("changed") for row in read_metrics(run / "attempts.jsonl")] == [
        None,
        {"train.clip_norm": [None, 0.5]},
        {"train.clip_norm": [None, 0.5], "stop.steps": [4, 6]},
    ]


def test_a_data_set_may_move_and_not_change(tmp_path: Path) -> None:
    path, run = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    assert call("run", path, "--simulate", "--out", run, "--set", "stop.steps=4")[0] == 0
    moved = (tmp_path / "tiny.h5").rename(tmp_path / "moved.h5")
    again = ("run", "--resume", run, "--set", "stop.steps=5", "--set")
    other = tiny(tmp_path)
    with h5py.File(other, "r+") as file:
        file["train/x"][7, 3] += 1
    said = refused(*again, f"data.path={other}")
    assert f"{other}: its training samples are not those that {run} was started with" in said
    assert call(*again, f"data.path={moved}")[0] == 0
