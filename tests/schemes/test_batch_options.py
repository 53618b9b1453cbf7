"""Options of the solver's schemes that cannot be, or have no effect; and which model the objective on record is of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from psopt import job
from psopt.config import ConfigError
from psopt.optim.solver import Status
from psopt.record import read_metrics
from psopt.roles.display import Figures
from tests.commands import call, no_rank
from tests.schemes.test_batch import SECTIONS, Loop, small
from tests.training import job_file, tiny, train

__all__ = ["no_rank"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 10}, "scheme.batch: 10 samples are no whole slices: a multiple of .*, 4, is"),
        ({"batch": 3}, "scheme.batch: 3 samples are no whole slices"),
        ({"iterations": 2}, "scheme.iterations: they are steps on one mini-batch: without 'batch'"),
    ],
)
def test_batches_that_cannot_be(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = job_file(
        tmp_path,
        tiny(tmp_path),
        scheme={"name": "sandblaster", **options},
        optimizer=None,
        train={"epochs": 2, "batch_size": 4},
    )
    with pytest.raises(ConfigError, match=said):
        job.load(path)


def test_an_optimizer_has_no_effect_and_that_is_said(tmp_path: Path, no_rank: None) -> None:
    """One word of a job file changes its scheme, so it is no error."""
    changes = {"optimizer": {"name": "Adam", "lr": 0.1}, "stop": {"steps": 2}}
    path = job_file(tmp_path, tiny(tmp_path), scheme={"name": "lbfgs_static"}, **changes)
    more = ("--set", "train.clip_norm=1.0")
    note = "scheme lbfgs_static takes its steps itself: optimizer, train.clip_norm have no effect"
    assert note in call("validate", path, *more)[1]
    status, text, _ = call("run", path, "--simulate", "--out", tmp_path / "run", *more)
    assert status == 0
    assert f"warning: {note}" in text
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["optimizer"] is summary["lr"] is None
    bare = job_file(
        tmp_path,
        tiny(tmp_path),
        **{**changes, "scheme": {"name": "lbfgs_static"}, "optimizer": None},
    )
    assert call("run", bare, "--simulate", "--out", tmp_path / "bare")[0] == 0
    other = json.loads((tmp_path / "bare" / "summary.json").read_text())
    assert other["parameters_sha256"] == summary["parameters_sha256"]


@pytest.mark.parametrize("name", SECTIONS)
def test_the_objective_on_record_is_that_of_the_saved_model(name: str, tmp_path: Path) -> None:
    """At each evaluation, accepted by the line search or not."""
    seen = []
    for steps in range(1, 11):
        config = small(tmp_path, SECTIONS[name], stop={"steps": steps})
        done = train(config, tmp_path / "run")
        parts = Loop(config).at(done.coordinator.server.model.parameters)
        assert done.coordinator.progress.objective == done.rows("step")[-1]["objective"]
        seen.append((done.rows("step")[-1]["objective"], sum(loss for loss, _ in parts) / 22))
    assert [on_record for on_record, _ in seen] == pytest.approx([own for _, own in seen], rel=1e-6)
    assert sorted(seen, reverse=True) == seen


@pytest.mark.parametrize("name", SECTIONS)
def test_a_run_is_bounded_by_its_job_alone(name: str, tmp_path: Path) -> None:
    """A solver by itself ends after 20,000 evaluations."""
    start = job.assemble(small(tmp_path, SECTIONS[name])).model.parameters
    scheme: Any = small(tmp_path, SECTIONS[name]).scheme
    solver = scheme.solver(start)
    solver.tell(1.0, solver.ask() * 0.0 + 1.0)
    solver._now.evaluations = solver._now.iterations = 10**9
    solver.tell(0.9, solver.ask() * 0.0 + 0.01)
    assert solver.status is Status.RUNNING
    assert solver.iterations == 10**9 + 1


@pytest.mark.parametrize("scheme", [SECTIONS["sandblaster"], {"name": "dane", "mu": 1.0}])
def test_the_objective_is_told(scheme: dict[str, Any], tmp_path: Path, no_rank: None) -> None:
    """While the run goes on, at its end, in the summary, and when its target was reached."""
    long = {"epochs": 1000, "batch_size": 4}
    changes = {"scheme": scheme, "optimizer": None, "stop": {"objective": 0.5}, "train": long}
    path, run = job_file(tmp_path, tiny(tmp_path), **changes), tmp_path / "run"
    status, text, _ = call("run", path, "--simulate", "--out", run)
    assert status == 0
    rows = [row for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "step"]
    assert rows[-1]["objective"] <= 0.5 < rows[-2]["objective"]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["objective"] == rows[-1]["objective"]
    assert summary["seconds_to_target"] == rows[-1]["seconds"]
    assert f"objective {rows[-1]['objective']:.10g}, test accuracy" in text.splitlines()[-2]
    figures = Figures(3, 1.0, 20, 1.0, rows[-1]["loss"], 0.5, rows[-1]["objective"])
    assert figures.text == f"objective {rows[-1]['objective']:.8g}  accuracy 50.00 %"
