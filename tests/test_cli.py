"""The `psopt` command, as far as it needs no ranks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import safetensors.torch
import torch

from psopt import __version__, job
from psopt.data.importers import IMPORTERS
from psopt.record import read_metrics
from tests.commands import call, no_rank, refused
from tests.training import ROOT, configured, fresh_module, job_file, psopt, tiny

__all__ = ["no_rank"]


def test_version_and_help() -> None:
    assert call("--version") == (0, f"psopt {__version__}\n", "")
    status, out, _ = call("--help")
    assert status == 0
    for command in ("run", "validate", "schema", "report", "sweep", "status", "export", "doctor"):
        assert command in out


def test_module_is_the_command() -> None:
    done = psopt("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"psopt {__version__}\n", "")


def test_schema_is_printed() -> None:
    status, out, err = call("schema")
    assert (status, err) == (0, "")
    assert json.loads(out)["title"] == "psopt job"
    assert json.loads(call("schema", "--sweep")[1])["title"] == "psopt sweep"


def test_validate_good_files(tmp_path: Path) -> None:
    path = job_file(tmp_path, tiny(tmp_path))
    example = ROOT / "configs" / "lenet5_bsp.yaml"
    assert call("validate", path, example) == (0, f"{path}: ok\n{example}: ok\n", "")


def test_a_scheme_that_needs_an_optimizer_says_so(tmp_path: Path) -> None:
    """Others do without one."""
    path = tmp_path / "job.yaml"
    text = "name: one\nmodel: {name: lenet5}\nscheme: {name: bsp}\n"
    path.write_text(text)
    status, out, err = call("validate", path)
    assert (status, out) == (2, "")
    assert re.match(
        rf"{re.escape(str(path))}:1:1: required key 'optimizer' is missing: scheme bsp takes its steps "
        r"by one, such as \{name: SGD, lr: 0.02\}",
        err,
    )
    path.write_text(text.replace("bsp", "sandblaster"))
    assert call("validate", path) == (0, f"{path}: ok\n", "")


def test_validate_names_file_line_and_column(tmp_path: Path) -> None:
    good, bad = job_file(tmp_path, tiny(tmp_path)), tmp_path / "bad.yaml"
    bad.write_text(
        "name: bad\n"
        "model: {name: lenet6}\n"
        "scheme: {name: bsp, slot: 3}\n"
        "optimizer: {name: SGD, lr: 0.1}\n"
        "train:\n"
        "  epochs: many\n"
    )
    status, out, err = call("validate", bad, good, tmp_path / "none.yaml")
    assert status == 2
    assert out == f"{good}: ok\n"
    lines = err.splitlines()
    for place, word in (("2:15", "lenet5"), ("3:21", "slots"), ("6:11", "epochs")):
        found = [line for line in lines if line.startswith(f"{bad}:{place}: ")]
        assert len(found) == 1, err
        assert word in found[0]
    assert f"{tmp_path / 'none.yaml'}: cannot be read" in err


def test_validate_knows_options_of_models_and_losses(tmp_path: Path) -> None:
    model = {"name": "mlp", "kwargs": {"hiden": [3]}}
    loss = {"name": "cross_entropy", "kwargs": {"smoothing": 0.1}}
    status, _, err = call("validate", job_file(tmp_path, tiny(tmp_path), model=model, loss=loss))
    assert status == 2
    assert re.search(r"job\.yaml:\d+:\d+: .*'hiden'.*'hidden'", err)
    assert re.search(r"job\.yaml:\d+:\d+: .*'smoothing'", err)


def test_validate_with_overrides(tmp_path: Path) -> None:
    path = job_file(tmp_path, tiny(tmp_path))
    assert call("validate", path, "--set", "train.epochs=3")[0] == 0
    assert "train.epoch" in refused("validate", path, "--set", "train.epoch=3")


def test_run_refuses_what_does_not_fit(tmp_path: Path) -> None:
    path = job_file(tmp_path, tiny(tmp_path))
    assert "give a config file, or --resume DIR" in refused("run")
    assert "give a config file, or --resume DIR" in refused("run", path, "--resume", tmp_path)
    assert "leave out --out" in refused("run", "--resume", tmp_path, "--out", tmp_path / "x")
    assert "-n 3 starts a coordinator and 2 workers" in refused("run", path)
    assert "-n 2 or more" in refused("run", path, "-n", 1)
    assert "cluster.workers" in refused("run", path, "--simulate", "-n", 3)
    assert "cannot be read" in refused("run", tmp_path / "none.yaml", "-n", 2)
    assert "cannot be read" in refused("run", tmp_path / "none.yaml", "--simulate")
    assert "'-n'" in refused("run", path, "-n", 0)
    assert not list(tmp_path.glob("run*"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"factory": "tests.zoo:nothing"}}, "has no nothing"),
        ({"optimizer": {"name": "SGD", "lr": 0.1, "groups": [{"match": "x*", "lr": 1}]}}, "'x*'"),
    ],
)
def test_run_refuses_before_training(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    path, out = job_file(tmp_path, tiny(tmp_path), **changes), tmp_path / "run"
    assert message in refused("run", path, "--simulate", "--out", out)
    assert not out.exists()


def test_run_refuses_data_that_is_not_there(tmp_path: Path) -> None:
    path, out = job_file(tmp_path, tmp_path / "nowhere.h5"), tmp_path / "run"
    assert "nowhere.h5" in refused("run", path, "--simulate", "--out", out)
    assert not out.exists()


def test_simulated_run(tmp_path: Path) -> None:
    path, out = job_file(tmp_path, tiny(tmp_path)), tmp_path / "a run's (first) dir"
    status, text, err = call("run", path, "--simulate", "--out", out, "--set", "cluster.workers=4")
    assert (status, err) == (0, "")
    assert text.endswith(f"run directory: {out}\n")
    assert "completed (epochs): 4 steps" in text
    assert not re.search(r"[^\x20-\x7e\n]", text)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["crew"], summary["workers"], summary["attempts"]) == ("simulated", 4, 1)
    assert len(read_metrics(out / "metrics.jsonl")) == 6
    assert job.load(out / "config.yaml").cluster.workers == 4
    assert (out / "log.txt").read_text().count("test loss") == 2
    assert "holds a run already" in refused("run", path, "--simulate", "--out", out)


def test_an_attempt_knows_its_batch_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = job_file(tmp_path, tiny(tmp_path)), tmp_path / "run"
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert call("run", path, "--simulate", "--out", out)[0] == 0
    monkeypatch.delenv("SLURM_JOB_ID")
    assert call("run", "--resume", out, "--set", "train.epochs=3")[0] == 0
    first, second = read_metrics(out / "attempts.jsonl")
    assert (first["batch_job"], first["batch_restarts"]) == ("12", 1)
    assert "batch_job" not in second
    assert second["changed"] == {"train.epochs": [2, 3]}


def test_run_directory_has_a_name_when_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = job_file(tmp_path, tiny(tmp_path))
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        assert call("run", path, "--simulate")[0] == 0
        assert len(list((tmp_path / "runs").glob("test-*"))) == number


def test_diverged_run_has_a_status_of_its_own(tmp_path: Path) -> None:
    path = job_file(tmp_path, tiny(tmp_path), optimizer={"name": "SGD", "lr": 3e38})
    status, text, _ = call("run", path, "--simulate", "--out", tmp_path / "run")
    assert status == 3
    assert text.splitlines()[-2].startswith("diverged (")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "diverged"
    assert "gradient not finite" in summary["reason"]


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_export_loads_into_the_plain_model(suffix: str, tmp_path: Path) -> None:
    changes = {"model": {"factory": "tests.zoo:normed"}}
    data, run, out = tiny(tmp_path), tmp_path / "run", tmp_path / f"model{suffix}"
    path = job_file(tmp_path, data, **changes)
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    assert call("export", run, out) == (0, f"{out}\n", "")
    load = torch.load if suffix == ".pt" else safetensors.torch.load_file
    config = configured(data, **changes)
    model, test = fresh_module(config), job.assemble(config).data.test
    model.load_state_dict(load(out))
    model.eval()
    x, y = test.range(0, len(test))
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    summary = json.loads((run / "summary.json").read_text())
    assert accuracy == pytest.approx(summary["test_accuracy"])
    checkpoint = sorted((run / "checkpoints").iterdir())[-1]
    other = tmp_path / f"other{suffix}"
    assert call("export", checkpoint, other)[0] == 0
    assert other.read_bytes() == out.read_bytes() or suffix == ".pt"


def test_export_refuses(tmp_path: Path) -> None:
    assert "no such directory" in refused("export", tmp_path / "none", tmp_path / "m.pt")
    assert "not a run directory" in refused("export", tmp_path, tmp_path / "m.pt")
    assert ".pt or .safetensors" in refused("export", tmp_path, tmp_path / "m.onnx")


def test_data_import_and_info(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    x, y = generator.integers(0, 256, (30, 4, 4), np.uint8), np.arange(30) % 3
    np.savez(tmp_path / "s.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    out = tmp_path / "s.h5"
    assert call("data", "import", "npz", tmp_path / "s.npz", out) == (0, f"{out}\n", "")
    status, text, _ = call("data", "info", out)
    assert status == 0
    assert "30 samples of 1x4x4 uint8" in text
    assert "9 samples" in text
    assert "3 classes" in text
    path = job_file(tmp_path, out)
    assert call("run", path, "--simulate", "--out", tmp_path / "run")[0] == 0
    assert "exists" in refused("data", "import", "npz", tmp_path / "s.npz", out)
    assert "unknown format 'npy'" in refused("data", "import", "npy", tmp_path / "s.npz", out)
    assert "no such file" in refused("data", "import", "npz", tmp_path / "none", tmp_path / "x.h5")


def test_options_of_an_import(tmp_path: Path) -> None:
    """Each of the type that the importer declares."""
    rows = "".join(f"{i % 2} 1:{i}.5 2:1\n" for i in range(8))
    (tmp_path / "a.txt").write_text(rows)
    (tmp_path / "a.t").write_text("1 1:3 2:0\n")
    out, test = tmp_path / "a.h5", f"test={tmp_path / 'a.t'}"
    source = ("data", "import", "libsvm", tmp_path / "a.txt")
    given = ("--set", test, "--set", "features=4", "--licence", "CC0")
    assert call(*source, out, *given)[0] == 0
    said = call("data", "info", out)[1]
    assert "CC0" in said
    with h5py.File(out) as file:
        assert (file["train/x"].shape, file["test/x"].shape) == ((8, 4), (1, 4))
    for option, message in {
        "tset=1": "unknown option 'tset'; did you mean 'test'?",
        "features=many": "option features of libsvm: Input should be a valid integer",
        "features=99999999999": "b.h5: takes 3199999999968 bytes, and its disk has",
        "target=foo": "option target of libsvm: Input should be ",
        "seed=-1": "cannot be imported with {'seed': -1}",
        "test": "write key=value",
    }.items():
        assert message in refused(*source, tmp_path / "b.h5", "--set", option)
    assert "it takes none" in refused("data", "import", "mnist", tmp_path, out, "--set", "a=1")


def test_data_import_names_its_formats() -> None:
    out = call("data", "import", "--help")[1]
    assert all(name in out for name in IMPORTERS)


def test_data_info_of_the_sample() -> None:
    status, text, _ = call("data", "info", "sample")
    assert status == 0
    assert "4000 samples of 1x28x28 uint8" in text
    assert "MNIST" in text


@pytest.mark.mpi
def test_doctor() -> None:
    done = psopt("doctor", COLUMNS="120")
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("Ready to run" if done.returncode == 0 else "Not ready to run")
    for topic in ("MPI", "HDF5 locking", "cores"):
        assert topic.lower() in done.stdout.lower()
