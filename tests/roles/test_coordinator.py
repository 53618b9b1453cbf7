"""The loop: when it evaluates, saves and stops, and how far it lets a scheme go."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from torch.nn.functional import cross_entropy

from psopt import job
from psopt.config import ConfigError
from psopt.record import CheckpointStore
from psopt.roles.schedule import Schedule
from psopt.schemes.base import Limit
from tests.training import Trained, configured, job_file, tiny, train

BSP = {"name": "bsp", "slots": 1}
SCHEMES: list[dict[str, Any]] = [
    BSP,
    {"name": "bsp", "exchange": "collective", "slots": 1},
    {"name": "asp"},
]


@pytest.fixture(params=SCHEMES, ids=lambda scheme: scheme.get("exchange", scheme["name"]))
def scheme(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


def run(tmp_path: Path, **changes: Any) -> Trained:
    """Ten steps of two samples an epoch."""
    options = {"scheme": BSP, "train": {"epochs": 6, "batch_size": 2}, **changes}
    return train(configured(tiny(tmp_path), **options), tmp_path / "run")


def evaluated(done: Trained) -> list[int]:
    return [row["step"] for row in done.rows("evaluation")]


@pytest.mark.parametrize(
    ("every", "steps"),
    [
        (1, [10, 20, 30, 40, 50, 60]),
        (0.25, [3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28, 30, 33, 35, 38, 40, 43, 45, 48, 50]),
        (3, [30, 60]),
        (4, [40, 60]),
        (100, [60]),
    ],
)
def test_evaluation_by_epochs(
    every: float, steps: list[int], scheme: dict[str, Any], tmp_path: Path
) -> None:
    done = run(tmp_path, scheme=scheme, evaluate={"every_epochs": every})
    assert evaluated(done)[: len(steps)] == steps
    assert evaluated(done)[-1] == 60
    assert [figures.step for figures in done.watcher.evaluations] == evaluated(done)


@pytest.mark.parametrize(("every", "steps"), [(25, [25, 50, 60]), (30, [30, 60]), (61, [60])])
def test_evaluation_by_steps(
    every: int, steps: list[int], scheme: dict[str, Any], tmp_path: Path
) -> None:
    assert evaluated(run(tmp_path, scheme=scheme, evaluate={"every_steps": every})) == steps


def test_evaluation_is_of_the_test_split_at_the_current_parameters(tmp_path: Path) -> None:
    done = run(tmp_path, evaluate={"every_epochs": 1, "batch_size": 4})  # chunks of 4, 4 and 1
    parts = job.assemble(done.coordinator.config)
    parts.model.parameters.copy_(done.coordinator.server.model.parameters)
    x, y = parts.data.test.range(0, 9)
    output = parts.model.module.eval()(x)
    last = done.rows("evaluation")[-1]
    assert last["test_loss"] == pytest.approx(cross_entropy(output, y).item(), rel=1e-6)
    assert last["test_accuracy"] == (output.argmax(1) == y).sum().item() / 9


def test_regression_has_a_loss_and_no_accuracy(tmp_path: Path) -> None:
    config = configured(
        tiny(tmp_path, regression=True),
        model={"name": "mlp", "kwargs": {"hidden": []}},
        loss={"name": "mse"},
        stop={"test_accuracy": 0.1},
    )
    done = train(config, tmp_path / "run")
    assert done.reason == "epochs"
    (last,) = done.rows("evaluation")[-1:]
    assert last["test_accuracy"] is None
    assert last["test_loss"] > 0
    assert done.rows("step")[0]["accuracy"] is None
    assert done.coordinator.progress.best_test_accuracy is None


def test_stop_at_steps(scheme: dict[str, Any], tmp_path: Path) -> None:
    done = run(tmp_path, scheme=scheme, stop={"steps": 17})
    assert (done.status, done.reason) == ("completed", "steps")
    assert done.coordinator.progress.step == 17
    assert evaluated(done) == [10, 17]
    assert len(done.rows("step")) == 17


def test_stop_at_epochs(scheme: dict[str, Any], tmp_path: Path) -> None:
    done = run(tmp_path, scheme=scheme)
    assert done.reason == "epochs"
    assert done.tickets.epoch == 6.0


def test_stop_at_accuracy(scheme: dict[str, Any], tmp_path: Path) -> None:
    done = run(tmp_path, scheme=scheme, stop={"test_accuracy": 0.5})
    assert done.reason == "test_accuracy"
    progress, rows = done.coordinator.progress, done.rows("evaluation")
    assert progress.test_accuracy is not None
    assert progress.test_accuracy >= 0.5
    assert all(row["test_accuracy"] < 0.5 for row in rows[:-1])
    assert progress.seconds_to_target == rows[-1]["seconds"] == progress.seconds
    assert progress.best_test_accuracy == max(row["test_accuracy"] for row in rows)


def test_stop_at_loss(scheme: dict[str, Any], tmp_path: Path) -> None:
    done = run(tmp_path, scheme=scheme, stop={"test_loss": 0.8})
    assert done.reason == "test_loss"
    assert done.coordinator.progress.seconds_to_target == done.rows("evaluation")[-1]["seconds"]
    losses = [row["test_loss"] for row in done.rows("evaluation")]
    assert losses[-1] <= 0.8 < min(losses[:-1])


def test_stop_at_seconds(scheme: dict[str, Any], tmp_path: Path) -> None:
    done = run(tmp_path, scheme=scheme, stop={"seconds": 0.1})
    assert done.reason == "seconds"
    seconds = [row["seconds"] for row in done.rows("step")]
    assert seconds[-1] >= 0.1
    if scheme.get("exchange") != "collective":  # which looks once a chunk of rounds
        assert seconds[-2] < 0.1


def test_stop_at_objective(tmp_path: Path) -> None:
    config = configured(
        tiny(tmp_path, regression=True),
        model={"name": "linear", "dtype": "float64"},
        loss={"name": "mse", "l2": 0.1},
        scheme={"name": "dane", "mu": 9.0, "local": {"solver": "cg", "gamma": 1e-6, "passes": 99}},
        train={"epochs": 100_000, "batch_size": 20},
        stop={"objective": 0.6},
    )
    done = train(config, tmp_path / "run")
    assert (done.status, done.reason) == ("completed", "objective")
    objectives = [row["objective"] for row in done.rows("step")]
    assert len(objectives) > 1
    assert objectives[-1] <= 0.6 < min(objectives[:-1])
    assert done.saved()["progress"]["objective"] == objectives[-1]


@pytest.mark.parametrize("name", ["dane", "giant", "admm", "one_shot", "sandblaster"])
def test_an_objective_that_the_start_has_already(name: str, tmp_path: Path) -> None:
    """No round is made; those whose evaluation of the start is a step of its own make that one."""
    config = configured(
        tiny(tmp_path), scheme={"name": name}, optimizer=None, stop={"objective": 9.0}
    )
    done = train(config, tmp_path / "run")
    assert (done.status, done.reason) == ("completed", "objective")
    progress = done.coordinator.progress
    assert progress.step == (1 if name == "sandblaster" else 0)
    assert progress.objective == pytest.approx(math.log(3.0))
    assert progress.seconds_to_target == progress.seconds > 0.0
    assert not done.coordinator.server.model.parameters.any()
    assert done.saved()["progress"]["step"] == progress.step


@pytest.mark.parametrize(
    ("scheme", "optimizer"),
    [({"name": "asp"}, {"name": "SGD", "lr": 0.1}), ({"name": "lbfgs_static", "batch": 8}, None)],
)
def test_stop_at_an_objective_that_is_not_measured(
    scheme: dict[str, Any], optimizer: Any, tmp_path: Path
) -> None:
    changes = {"scheme": scheme, "optimizer": optimizer, "stop": {"objective": 1.0}}
    with pytest.raises(
        ConfigError, match=f"scheme {scheme['name']} does not measure the objective"
    ):
        job.load(job_file(tmp_path, tiny(tmp_path), **changes))


def test_first_condition_met_counts(tmp_path: Path) -> None:
    stop = {"steps": 12, "test_accuracy": 0.01, "test_loss": 100.0, "seconds": 1e6}
    done = run(tmp_path, stop=stop)
    assert (done.reason, done.coordinator.progress.step) == ("test_accuracy", 10)


def test_diverged_run_is_not_saved(tmp_path: Path) -> None:
    options: dict[str, Any] = {"checkpoint": {"every_steps": 1, "keep": 9}}
    done = run(tmp_path, optimizer={"name": "SGD", "lr": 1e38}, **options)
    assert done.status == "diverged"
    assert "gradient not finite" in done.reason
    saved = CheckpointStore(done.run.checkpoints, 1).load_latest()
    assert saved is None or saved[0] <= done.coordinator.progress.step


def test_checkpoints_come_at_their_interval_and_at_the_end(
    scheme: dict[str, Any], tmp_path: Path
) -> None:
    done = run(tmp_path, scheme=scheme, checkpoint={"every_steps": 25, "keep": 9})
    names = [path.name for path in CheckpointStore(done.run.checkpoints, 1).paths()]
    assert names == [f"step-{step:012d}.h5" for step in (25, 50, 60)]


def test_evaluation_and_checkpoint_do_not_change_the_course(
    scheme: dict[str, Any], tmp_path: Path
) -> None:
    plain = run(tmp_path, scheme=scheme, evaluate={"every_epochs": 100})
    often = run(
        tmp_path,
        scheme=scheme,
        evaluate={"every_steps": 1},
        checkpoint={"every_steps": 1},
        log={"every_steps": 7},
    )
    assert often.sha == plain.sha


def test_evaluation_time_does_not_count(tmp_path: Path) -> None:
    done = run(tmp_path)
    late = done.coordinator
    before = late.progress.seconds
    late._clock_base -= 5.0  # as an evaluation of five seconds leaves it
    assert late._clock(late.crew.now()) == pytest.approx(before - 5.0, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "step", "limit"),
    [
        ({}, 0, (1 << 30, 20)),
        ({"evaluate": {"every_epochs": 0.25}}, 0, (1 << 30, 5)),
        ({"evaluate": {"every_epochs": 0.25}}, 1, (1 << 30, 3)),
        ({"evaluate": {"every_epochs": 0.25}}, 5, (1 << 30, 5)),
        ({"evaluate": {"every_epochs": 3}}, 25, (1 << 30, 10)),
        ({"evaluate": {"every_steps": 8}}, 3, (5, 1 << 62)),
        ({"evaluate": {"every_steps": 8}}, 8, (8, 1 << 62)),
        ({"checkpoint": {"every_steps": 5}, "stop": {"steps": 7}}, 3, (2, 14)),
        ({"checkpoint": {"every_steps": 5}, "stop": {"steps": 7}}, 5, (2, 10)),
    ],
)
def test_limit(changes: dict[str, Any], step: int, limit: tuple[int, int], tmp_path: Path) -> None:
    """A scheme may go on to the next evaluation, checkpoint or stop, and no further."""
    schedule = Schedule(configured(tiny(tmp_path), **changes), 20)
    assert schedule.limit((step, 2 * step)) == Limit(*limit)
