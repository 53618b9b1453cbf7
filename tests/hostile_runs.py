"""Checkpoints and run directories as somebody would make them who means harm; see `tests.hostile`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from psopt.record import checkpoint_file
from psopt.record.checkpoint import CheckpointStore
from tests.hostile import SECRET, TOUCHED, Case, Maker, job

CONFIG = """\
name: hostile
model: {factory: 'hostile_model:build'}
data: {path: sample}
scheme: {name: asp}
optimizer: {name: SGD, lr: 0.1}
"""
"""Of a run whose model is built by code that lies beside the run."""


def checkpoint(path: Path, change: Callable[[h5py.File], object]) -> None:
    """A checkpoint that is right but for what ``change`` does, with the digest that belongs to it."""
    store = CheckpointStore(path.parent, keep=1)
    made = store.save(1, {"parameters": {"w": torch.zeros(3)}, "buffers": {}, "aliases": {}})
    with h5py.File(made, "r+") as file:
        change(file)
    with made.open("r+b") as handle:
        _seal(handle)
    made.rename(path)


def _seal(handle: Any) -> None:
    block = checkpoint_file._block(handle, checkpoint_file.Stamp(1, ""))
    handle.seek(0)
    handle.write(block)


def saved(change: Callable[[h5py.File], object], said: str) -> Maker:
    """A checkpoint file, to be exported."""

    def make(folder: Path) -> Case:
        path = folder / "step.h5"
        (folder / "other.h5").write_text(SECRET)
        checkpoint(path, change)
        return Case(("export", path, folder / "out.pt"), said)

    return make


def _put(name: str, value: Any, dtype: str | None = None) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        if name in file:
            del file[name]
        file[name] = value
        if dtype is not None:
            file[name].attrs["torch dtype"] = dtype

    return change


def _cycle(file: h5py.File) -> None:
    file["parameters/again"] = file["parameters"]


def _twice(file: h5py.File) -> None:
    file["parameters/v"] = file["parameters/w"]


def _deep(file: h5py.File) -> None:
    file.create_group("buffers/" + "/".join("d" * 2000))


def _made(**options: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        made = file.create_dataset("buffers/b", dtype=np.float32, **options)
        made.attrs["torch dtype"] = "float32"

    return change


def record(name: str, content: str, said: str, command: str = "report") -> Maker:
    """A run directory in which one file is hostile."""

    def make(folder: Path) -> Case:
        run = directory(folder)
        (run / name).write_text(content)
        return Case((command, run), rf"run/{name}{said}")

    return make


def directory(folder: Path) -> Path:
    """A run directory without fault, and the code beside it that its factory names."""
    run = folder / "run"
    run.mkdir()
    (run / "config.yaml").write_text(CONFIG)
    touch = f"from pathlib import Path\nPath({str(folder.parent / TOUCHED)!r}).touch()\n"
    (folder / "hostile_model.py").write_text(touch)
    return run


def led(name: str, *words: str, out: str | None = None) -> Maker:
    """A run directory in which ``name`` is a link to a file or a directory outside."""

    def make(folder: Path) -> Case:
        run, secret = directory(folder), folder / "secret"
        if name == "checkpoints":
            secret.mkdir()
        else:
            secret.write_text(SECRET)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(secret)
        after = () if out is None else (folder / out,)
        return Case((*words, run, *after), rf"run/{name}: is a symbolic link")

    return make


def _led_checkpoint(folder: Path) -> Case:
    run = directory(folder)
    (run / "checkpoints").mkdir()
    checkpoint(folder / "step.h5", lambda _: None)
    (run / "checkpoints" / "step-000000000001.h5").symlink_to(folder / "step.h5")
    said = r"step-000000000001\.h5: .*is a symbolic link"
    return Case(("export", run, folder / "out.pt"), said)


def _many_ranks(folder: Path) -> Case:
    run = directory(folder)
    (run / "config.yaml").write_text(
        CONFIG.replace("factory: 'hostile_model:build'", "name: lenet5")
    )
    (run / "attempts.jsonl").write_text('{"ranks": 99999}\n')
    said = r"run/attempts\.jsonl: the last attempt had 99999 ranks"
    return Case(("run", "--resume", run), said)


def _metrics_pipe(folder: Path) -> Case:
    run = directory(folder)
    os.mkfifo(run / "metrics.jsonl")
    return Case(("report", run), "metrics.jsonl: is a pipe, a socket or a device")


def _endless_metrics(folder: Path) -> Case:
    """A terabyte of zeros, which takes no room on the disk."""
    run = directory(folder)
    (run / "metrics.jsonl").touch()
    os.truncate(run / "metrics.jsonl", 2**40)
    return Case(("report", run), r"metrics\.jsonl:1: the line is longer than")


def _submission_pipe(*words: str) -> Maker:
    def make(folder: Path) -> Case:
        os.mkfifo(directory(folder) / "batch.json")
        return Case((*words, folder / "run"), r"run/batch\.json: cannot be read: is a pipe")

    return make


def _led_log(folder: Path) -> Case:
    (directory(folder) / "batch").mkdir()
    (folder / "secret").write_text(SECRET)
    (folder / "run" / "batch" / "7.log").symlink_to(folder / "secret")
    return Case(("logs", folder / "run"), r"batch/7\.log: cannot be read: is a symbolic link")


def _led_logs(folder: Path) -> Case:
    (folder / "secrets").mkdir()
    (folder / "secrets" / "7.log").write_text(SECRET)
    (directory(folder) / "batch").symlink_to(folder / "secrets")
    return Case(("logs", folder / "run"), "run/batch: is a symbolic link")


def _aliases(folder: Path) -> Case:
    run = directory(folder)
    made = job(b"", "")(folder)
    Path(str(made.arguments[-1])).rename(run / "config.yaml")
    levels = (
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcde", "bcdef", strict=True)
    )
    (run / "config.yaml").write_text("a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(levels))
    return Case(("report", run), r"run/config\.yaml:\d+:\d+: aliases expand to more than")


_SPAN = '[\n{"ph": "X", "name": "compute", "tid": "zero", "ts": 1, "dur": 1}\n]\n'
_NESTED = "[" * 100_000

RUNS: dict[str, Maker] = {
    "saved external link": saved(
        _put("parameters/v", h5py.ExternalLink("other.h5", "/x")), "/parameters/v: a link to else"
    ),
    "saved soft link": saved(_put("parameters/v", h5py.SoftLink("/")), "/parameters/v: a link"),
    "saved cycle": saved(_cycle, "/parameters/again: has two names, or holds itself"),
    "saved twice": saved(_twice, "/parameters/[vw]: has two names"),
    "saved deep groups": saved(_deep, "/d: nested more than 32 levels deep"),
    "saved shape": saved(_made(shape=(2**45,), chunks=(2**10,)), "/buffers/b: not a plain dataset"),
    "saved claim": saved(_made(shape=(2**40,)), "/buffers/b: claims 4398046511104 bytes"),
    "saved filter": saved(
        _made(shape=(9,), compression="gzip"), "/buffers/b: (not a plain|passes through)"
    ),
    "saved elsewhere": saved(
        _made(shape=(3,), external=[("other.h5", 0, 12)]), "/buffers/b: not a plain dataset"
    ),
    "saved text of any length": saved(_put("progress", "{}"), "/progress: neither a tensor nor"),
    "saved nested text": saved(_put("progress", np.bytes_(_NESTED)), "/progress: not JSON: nested"),
    "saved dtype": saved(_put("buffers/b", 1.0, "load"), "/buffers/b: unknown dtype 'load'"),
    "saved as another": saved(_put("buffers/b", 1.0, "int64"), "/buffers/b: a int64 is not stored"),
    "saved without tensors": saved(
        _put("parameters", np.bytes_("[1]")), "not tensors by their names"
    ),
    "saved number": saved(_put("parameters/w", np.bytes_("1")), "parameter 'w' is no tensor"),
    "not a number": record("summary.json", '{"seconds": NaN}', ": .*NaN is no JSON number"),
    "nested summary": record("summary.json", _NESTED, ": .*nested more than 64 levels"),
    "summary of texts": record(
        "summary.json", '{"workers": "x"}', ": workers is 'x', not a number"
    ),
    "immense number": record(
        "metrics.jsonl", '{"step": 1e999}\n', ":1: .*beyond all floating-point"
    ),
    "long number": record("metrics.jsonl", f'{{"step": {"9" * 5000}}}\n', ":1: .*of 5000 digits"),
    "rows of lists": record(
        "metrics.jsonl", '{"step": 1}\n{"step": []}\n', r":2: step is \[\], not"
    ),
    "spans of texts": record("timeline.json", _SPAN, ":2: not a trace event"),
    "job of aliases": _aliases,
    "many ranks": _many_ranks,
    "metrics pipe": _metrics_pipe,
    "metrics without end": _endless_metrics,
    "submission pipe resumed": _submission_pipe("resume"),
    "submission pipe cancelled": _submission_pipe("cancel"),
    "submission of numbers": record("batch.json", '{"job": 7}', ": is no record", "cancel"),
    "linked log of a job": _led_log,
    "linked logs of jobs": _led_logs,
    "linked log shown": led("log.txt", "logs"),
    "linked summary": led("summary.json", "report"),
    "linked metrics": led("metrics.jsonl", "report"),
    "linked log": led("log.txt", "run", "--simulate", "--resume"),
    "linked job": led("config.yaml", "report"),
    "linked checkpoints": led("checkpoints", "export", out="out.pt"),
    "linked checkpoint": _led_checkpoint,
}
