"""The directory of a sweep: what is written is read, and what is damaged leads nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from psopt.record import NotASweep, SweepDirectory, SweepEntry, SweepRecord

ID = "ab" + 14 * "0"


def record() -> SweepRecord:
    entries = (SweepEntry(ID, {"optimizer.lr": 0.1, "seed": 1}),)
    return SweepRecord("rates", ("optimizer.lr", "seed"), entries, {"train": {"epochs": 1}})


def test_round_trip(tmp_path: Path) -> None:
    directory = SweepDirectory(tmp_path / "a" / "b")
    assert not directory.is_one()
    directory.write(record())
    assert directory.is_one()
    assert directory.read() == record()


def test_runs_are_sharded(tmp_path: Path) -> None:
    directory = SweepDirectory(tmp_path)
    path = directory.prepare(ID, "name: x\n", {"seed": 1})
    assert path == tmp_path / "runs" / "ab" / ID
    assert (path / "job.yaml").read_text() == "name: x\n"
    assert json.loads((path / "assignment.json").read_text()) == {
        "id": ID,
        "assignment": {"seed": 1},
    }


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"runs": [{"id": "../../etc", "assignment": {}}]}, "'../../etc' is no id of a run"),
        ({"runs": [{"id": ID, "assignment": []}]}, "is not a mapping"),
        ({"runs": 3}, "not iterable"),
        ({"keys": [1]}, "keys: not a list of texts"),
        ({"base": None}, "is not a mapping"),
    ],
)
def test_damaged(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    directory = SweepDirectory(tmp_path)
    directory.write(record())
    plan = json.loads(directory.plan_path.read_text())
    directory.plan_path.write_text(json.dumps({**plan, **change}))
    with pytest.raises(NotASweep, match=r"sweep\.json: cannot be read") as caught:
        directory.read()
    assert problem in str(caught.value)


def test_none(tmp_path: Path) -> None:
    with pytest.raises(NotASweep, match="no such directory"):
        SweepDirectory(tmp_path / "none").read()
    with pytest.raises(NotASweep, match=r"sweep\.json is missing"):
        SweepDirectory(tmp_path).read()
