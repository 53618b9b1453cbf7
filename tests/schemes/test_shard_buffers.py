"""Tests, checkpoints and resumes leave no trace in a run on shards, whatever buffers its model has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training import configured, tiny, train

SCHEMES: list[dict[str, Any]] = [
    {"name": "dane", "mu": 0.1},
    {"name": "dane", "safeguard": True},
    {"name": "inexact_dane", "mu": 0.1},
    {"name": "aide"},
    {"name": "giant"},
    {"name": "admm", "local": {"passes": 8}},
    {"name": "sandblaster"},
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: "-".join(map(str, scheme.values())))
def test_a_look_at_the_model_leaves_no_trace(scheme: dict[str, Any], tmp_path: Path) -> None:
    rare = {"every_steps": 1000}
    config = configured(
        tiny(tmp_path, rows=40),
        scheme=scheme,
        model={"factory": "tests.zoo:shifted_and_normed", "dtype": "float64"},
        optimizer=None,
        train={"epochs": 10**4, "batch_size": 5},
        stop={"steps": 5},
        evaluate=rare,
        checkpoint=rare,
    )
    whole = train(config, tmp_path / "whole", workers=2)
    shas = {whole.sha}
    for section in ("evaluate", "checkpoint"):
        often = config.model_copy(
            update={section: getattr(config, section).model_copy(update={"every_steps": 1})}
        )
        shas.add(train(often, tmp_path / section, workers=2).sha)
    half = config.model_copy(update={"stop": config.stop.model_copy(update={"steps": 2})})
    tree = train(half, tmp_path / "half", workers=2).saved()
    again = train(config, tmp_path / "half", workers=3, tree=tree)
    assert shas == {again.sha}
    objectives = [[row["objective"] for row in run.rows("step")] for run in (whole, again)]
    assert objectives[0] == objectives[1]
