"""Sweep files and sweep directories as somebody would make them who means harm; see `tests.hostile`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.hostile import SECRET, Case, Maker, device, pipe

_HEAD = "name: x\nbase: job.yaml\nsimulate: true\n"
_JOB = "name: x\nmodel: {name: softmax}\nscheme: {name: asp}\noptimizer: {name: SGD, lr: 0.1}\n"
_PLAN = {"name": "x", "keys": ["seed"], "base": {}, "runs": []}


def sweep(text: str, said: str) -> Maker:
    """A sweep file beside a job that is right."""

    def make(folder: Path) -> Case:
        (folder / "job.yaml").write_text(_JOB)
        path = folder / "sweep.yaml"
        path.write_text(text)
        return Case(("sweep", path, "--dry-run"), said)

    return make


def plan(command: str, said: str, text: str = "", **change: object) -> Maker:
    """The directory of a sweep whose plan is another."""

    def make(folder: Path) -> Case:
        (folder / "out").mkdir()
        (folder / "out" / "sweep.json").write_text(text or json.dumps({**_PLAN, **change}))
        (folder / "secret").write_text(SECRET)
        return Case((command, folder / "out"), rf"out/sweep\.json: cannot be read .*{said}")

    return make


def _linked(command: str) -> Callable[[Path], Case]:
    def make(folder: Path) -> Case:
        (folder / "secret.json").write_text(json.dumps({**_PLAN, "keys": SECRET}))
        (folder / "out").mkdir()
        (folder / "out" / "sweep.json").symlink_to(folder / "secret.json")
        return Case((command, folder / "out"), r"out/sweep\.json: cannot be read .*symbolic link")

    return make


def _base_pipe(folder: Path) -> Case:
    os.mkfifo(folder / "job.yaml")
    (folder / "sweep.yaml").write_text(_HEAD)
    said = r"sweep\.yaml:2:7: base: .*job\.yaml: .*is a pipe, a socket or a device"
    return Case(("sweep", folder / "sweep.yaml", "--dry-run"), said)


_ROW = "[" + ", ".join(["1"] * 2000) + "]"
_NESTED = "[" * 100_000

SWEEPS: dict[str, Maker] = {
    "sweep pipe": pipe("sweep", "--dry-run"),
    "sweep device": device("sweep", "--dry-run"),
    "base pipe": _base_pipe,
    "base device": sweep(
        _HEAD.replace("job.yaml", "/dev/zero"), "base: /dev/zero: .*is a pipe, a socket or a device"
    ),
    "sweep tag": sweep(
        _HEAD + "grid: {seed: !!python/object/apply:os.system [1]}", ":4:14: the tag .* is refused"
    ),
    "immense sweep": sweep(
        _HEAD + f"grid: {{seed: {_ROW}, train.epochs: {_ROW}, stop.steps: {_ROW}}}",
        "these are 8000000000 runs: at most 10000",
    ),
    "many draws": sweep(
        _HEAD + "random: {count: 9999999999, keys: {}}", "count: must be at most 10000"
    ),
    "many seeds": sweep(_HEAD + "seeds: 9999999999", "seeds: must be a list, or a count from 1"),
    "key of a dunder": sweep(_HEAD + "grid: {__init__.__globals__: [1]}", "unknown key '__init__'"),
    "plan that leads out": plan(
        "status", "is no id of a run", runs=[{"id": "../../secret", "assignment": {}}]
    ),
    "plan of numbers": plan("report", "not iterable", runs=1),
    "nested plan": plan("status", "nested more than 64 levels", text=_NESTED),
    "nested plan reported": plan("report", "nested more than 64 levels", text=_NESTED),
    "linked plan": _linked("status"),
}
