"""What a run leaves behind: rows, summary, timeline. Other tools read these; the keys are a promise."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from psopt.data.plan import Ticket
from psopt.record import read_timeline
from psopt.roles.summary import summarise
from tests.training import Trained, configured, tiny, train

STEP = {
    *("kind", "step", "version", "epoch", "samples", "seconds", "loss", "accuracy", "staleness"),
    *("weight", "worker"),
}
EVALUATION = {
    *("kind", "step", "version", "epoch", "samples", "seconds", "test_loss", "test_accuracy"),
}
SUMMARY = {
    *("name", "scheme", "workers", "crew", "status", "reason", "steps", "samples", "epochs"),
    *("seconds", "wall_seconds", "evaluation_seconds", "test_accuracy", "test_loss"),
    *("refused_by", "late_replies"),
    *("checkpoint_seconds", "checkpoint_cpu_seconds"),
    *("best_test_accuracy", "objective", "seconds_to_target", "mean_staleness", "max_staleness"),
    *(
        "degraded",
        "lost_workers",
        "staleness_histogram",
        "refused_updates",
        "refused_samples",
        "parameters",
    ),
    *("parameters_sha256", "optimizer", "lr", "batch_size", "seed", "worker_seconds", "attempts"),
    "restarts",
}
SCHEMES: list[dict[str, Any]] = [
    {"name": "bsp"},
    {"name": "bsp", "exchange": "collective"},
    {"name": "asp"},
    {"name": "wasp"},
]


@pytest.fixture(params=SCHEMES, ids=lambda scheme: scheme.get("exchange", scheme["name"]))
def done(request: pytest.FixtureRequest, tmp_path: Path) -> Trained:
    return run(tmp_path, scheme=request.param)


def run(tmp_path: Path, **changes: Any) -> Trained:
    return train(configured(tiny(tmp_path), **changes), tmp_path / "run", workers=3)


def summary(done: Trained, **changes: Any) -> dict[str, Any]:
    said = {"status": done.status, "reason": done.reason, "wall_seconds": 9.0, "attempts": [{}]}
    return summarise(done.coordinator, crew="simulated", **{**said, **changes})


def test_losses_between_attempts(tmp_path: Path) -> None:
    """Each worker with the number that it had in the attempt that ended with it; a coordinator is none."""
    done = run(tmp_path)
    attempts = [{}, {"lost_ranks": [0, 2]}, {}, {"lost_ranks": [0]}, {"lost_ranks": [1]}]
    found = summary(done, attempts=attempts)
    assert (found["attempts"], found["restarts"]) == (5, 3)
    assert (found["degraded"], found["lost_workers"]) == (True, [1, 0])


def test_rows_of_steps(done: Trained) -> None:
    rows = done.rows("step")
    assert all(set(row) == STEP for row in rows)
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    samples = [row["samples"] for row in rows]
    assert samples == sorted(samples)
    assert samples[-1] == 40
    assert [row["epoch"] for row in rows] == [count / 20 for count in samples]
    for row in rows:
        assert row["loss"] > 0
        assert 0 <= row["accuracy"] <= 1
        assert row["staleness"] >= 0
        assert 0 < row["weight"] <= 1
        assert row["worker"] in (
            {None} if done.coordinator.config.scheme.name == "bsp" else {0, 1, 2}
        )


def test_rows_of_evaluations(done: Trained) -> None:
    rows = done.rows("evaluation")
    assert len(rows) == 2
    assert all(set(row) == EVALUATION for row in rows)
    assert rows[-1]["epoch"] == 2.0


def test_interval_of_rows(tmp_path: Path) -> None:
    done = run(tmp_path, scheme={"name": "asp"}, log={"every_steps": 4})
    assert [row["step"] for row in done.rows("step")] == [4, 8]
    assert len(done.rows("evaluation")) == 2
    assert len(done.watcher.steps) == 10


def test_summary(done: Trained) -> None:
    found, rows = summary(done), done.rows("step")
    assert set(found) == SUMMARY
    assert found["workers"] == 3
    assert (found["status"], found["reason"]) == ("completed", "epochs")
    assert (found["steps"], found["samples"], found["epochs"]) == (len(rows), 40, 2.0)
    parameters = done.coordinator.server.model.parameters
    sha = hashlib.sha256(parameters.numpy().astype("<f4").tobytes()).hexdigest()
    assert found["parameters_sha256"] == sha
    assert found["parameters"] == parameters.numel() == 21
    last = done.rows("evaluation")[-1]
    assert (found["test_loss"], found["test_accuracy"]) == (
        last["test_loss"],
        last["test_accuracy"],
    )
    staleness = [row["staleness"] for row in rows]
    assert found["mean_staleness"] == pytest.approx(sum(staleness) / len(staleness))
    assert found["max_staleness"] == max(staleness)
    assert sum(found["staleness_histogram"].values()) == len(rows)
    assert found["seconds"] == rows[-1]["seconds"]


def test_seconds_of_each_worker(done: Trained) -> None:
    found = summary(done)["worker_seconds"]
    assert [entry["worker"] for entry in found] == [0, 1, 2]
    for entry in found:
        assert set(entry) == {"worker", "compute", "wait", "communication"}
        assert entry["compute"] > 0
        assert all(value >= 0 for key, value in entry.items() if key != "worker")
    computed = sum(entry["compute"] for entry in found)
    assert computed == pytest.approx(
        0.01 * 40, rel=0.01
    )  # `steady`: a hundredth of a second a sample


def test_summary_of_a_run_that_failed_before_its_first_step(tmp_path: Path) -> None:
    done = run(tmp_path, stop={"steps": 1})
    done.coordinator.journal.staleness.clear()
    found = summary(done, status="failed", reason="x")
    assert (found["mean_staleness"], found["max_staleness"]) == (0.0, 0)


def test_timeline_has_a_lane_for_each_rank(done: Trained) -> None:
    events = [event for event in read_timeline(done.run.timeline_path) if event["ph"] == "X"]
    kinds = {rank: {e["name"] for e in events if e["tid"] == rank} for rank in range(4)}
    assert "wait" in kinds[0]
    assert all("compute" in kinds[rank] for rank in (1, 2, 3))
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in events)


def test_spans_of_a_worker_do_not_overlap(done: Trained) -> None:
    events = [event for event in read_timeline(done.run.timeline_path) if event["ph"] == "X"]
    for rank in (1, 2, 3):
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == rank)
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end - 0.01  # microseconds; the file rounds to a thousandth


def test_refused_rows_and_counts(tmp_path: Path) -> None:
    config = configured(tiny(tmp_path), scheme={"name": "asp"}, on_bad_update="skip")
    done = train(config, tmp_path / "run", bad={Ticket(1, 0)})
    (row,) = done.rows("refused")
    assert set(row) == STEP
    found = summary(done)
    assert (found["refused_updates"], found["refused_samples"]) == (1, 4)
    assert sum(found["staleness_histogram"].values()) == found["steps"] == 9
