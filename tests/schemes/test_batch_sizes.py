"""What is tried before a run is what will be computed: batches of one row, which batch normalisation cannot take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psopt import job, precheck
from psopt.models.factory import ModelError
from tests.commands import call, no_rank, refused
from tests.training import configured, job_file, tiny

__all__ = ["no_rank"]

NORMED = {"factory": "tests.zoo:normed"}
STATELESS = {"factory": "tests.schemes.test_batch_sizes:stateless"}


def stateless(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Batch normalisation without running statistics: no buffer travels."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(input_shape[0], 8),
        nn.BatchNorm1d(8, track_running_stats=False),
        nn.Linear(8, outputs),
    )


def parts(folder: Path, rows: int, scheme: dict[str, Any], model: dict[str, Any]) -> job.Parts:
    optimizer = {"name": "SGD", "lr": 0.1} if scheme["name"] == "bsp" else None
    return job.assemble(
        configured(tiny(folder, rows=rows), scheme=scheme, model=model, optimizer=optimizer)
    )


@pytest.mark.parametrize(
    ("rows", "workers", "scheme", "model", "good"),
    [
        (21, 2, {"name": "bsp"}, NORMED, False),  # 4, 4, 4, 4, 4, 1
        (22, 2, {"name": "bsp"}, NORMED, True),
        (21, 2, {"name": "dane"}, STATELESS, True),  # shards of 10 and 11
        (21, 2, {"name": "dane"}, NORMED, False),  # statistics are those of the epoch's batches
        (22, 5, {"name": "dane"}, STATELESS, False),  # a shard of 5
        (22, 5, {"name": "dane", "shards": 2}, STATELESS, True),
        (20, 2, {"name": "dane", "shards": 4}, STATELESS, False),
        (20, 2, {"name": "one_shot"}, STATELESS, True),
        (20, 2, {"name": "one_shot", "part": 0.5}, STATELESS, False),  # 5 of 10
        (21, 2, {"name": "lbfgs_static"}, STATELESS, False),
        (21, 2, {"name": "lbfgs_static", "batch": 8}, STATELESS, False),
        (21, 2, {"name": "lbfgs_static", "batch": 16}, STATELESS, True),  # the rest is left out
    ],
)
def test_batches_of_one(
    rows: int,
    workers: int,
    scheme: dict[str, Any],
    model: dict[str, Any],
    good: bool,
    tmp_path: Path,
) -> None:
    given = parts(tmp_path, rows, scheme, model)
    if good:
        precheck.check(given, workers)
        return
    with pytest.raises(ModelError, match="Expected more than 1 value per channel"):
        precheck.check(given, workers)


def test_a_run_that_goes_on_keeps_its_shards(tmp_path: Path, no_rank: None) -> None:
    """Another number of workers, which would make a shard of five rows in a new run."""
    path, run = tmp_path / "job.yaml", tmp_path / "run"
    path = job_file(
        tmp_path,
        tiny(tmp_path, rows=22),
        scheme={"name": "dane", "mu": 1.0},
        model=STATELESS,
        optimizer=None,
        train={"epochs": 1000, "batch_size": 4},
        stop={"steps": 1},
        cluster={"workers": 2},
    )
    assert "Expected more than 1 value" in refused(
        "run", path, "--simulate", "--set", "cluster.workers=5"
    )
    assert call("run", path, "--simulate", "--out", run)[0] == 0
    more = ("--set", "cluster.workers=5", "--set", "stop.steps=2")
    assert call("run", "--resume", run, *more)[0] == 0
