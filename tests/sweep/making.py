"""Small sweeps: a base job on tiny data, and a sweep file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psopt.config import ConfigError
from psopt.sweep.plan import Plan, plan
from tests.training import job_file, tiny

HEAD = "name: rates\nbase: job.yaml\nsimulate: true\n"


def sweep_file(folder: Path, text: str, /, head: str = HEAD, **changes: Any) -> Path:
    """A sweep file, and the base that it names: one epoch of softmax on tiny data."""
    folder.mkdir(exist_ok=True)
    train = {"epochs": 1, "batch_size": 4}
    job_file(folder, tiny(folder), **{"train": train, "cluster": {"workers": 2}, **changes})
    path = folder / "sweep.yaml"
    path.write_text(head + text, encoding="utf-8")
    return path


def planned(folder: Path, text: str, **changes: Any) -> Plan:
    """The plan of a sweep file."""
    return plan(sweep_file(folder, text, **changes))


def refused(path: Path) -> list[str]:
    """What is wrong with a sweep file, without its name."""
    with pytest.raises(ConfigError) as caught:
        plan(path)
    return str(caught.value).replace(f"{path}:", "").splitlines()
