"""What is checked of model, loss and data together; convex problems and float64 as whole jobs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from psopt import job, precheck
from psopt.data import DataError
from psopt.models import ModelError
from psopt.record import CheckpointStore
from tests.commands import call, no_rank, refused
from tests.threads import one_thread
from tests.training import configured, job_file, tiny, train

__all__ = ["no_rank", "one_thread"]

LOGISTIC: dict[str, Any] = {"model": {"name": "logistic"}, "loss": {"name": "logistic"}}


class Mixed(nn.Module):
    """Parameters in float32, a statistic, and constants that are no real numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("turn", torch.tensor([1j]))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x - self.mean)
        return result


def narrow(input_shape: tuple[int, ...], width: int) -> nn.Module:
    return nn.Linear(input_shape[0], width)


def binary() -> Any:
    """A loss of one logit."""

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(output[:, 0], y.to(output.dtype))

    return loss


def checked(data: Path, classes: list[int] | None = None, **changes: Any) -> job.Parts:
    parts = job.assemble(configured(data, data={"path": str(data), "classes": classes}, **changes))
    precheck.check(parts)
    return parts


def test_one_logit_for_two_classes(tmp_path: Path) -> None:
    data = tiny(tmp_path)
    parts = checked(data, [2, 0], **LOGISTIC)
    assert parts.model.parameters.numel() == 7
    assert parts.data.classes == ("c", "a")
    factory = {"factory": "tests.test_job:binary"}
    checked(data, [2, 0], model={"name": "logistic"}, loss=factory)


@pytest.mark.parametrize(
    ("changes", "classes", "message"),
    [
        (LOGISTIC, None, "data set has 3 outputs; choose two with data.classes, or take model"),
        (LOGISTIC, [0, 1, 2], "has 3 outputs"),
        (
            {"model": {"name": "logistic"}},
            [0, 1],
            r"has 1 outputs, but the labels of .*tiny.h5 go up to 1; .* goes with loss logistic",
        ),
        (
            {"model": {"name": "softmax"}, "loss": {"name": "logistic"}},
            [0, 1],
            r"outputs \(2, 2\) must be one logit a sample, \(2, 1\); take model logistic",
        ),
        (
            {
                "model": {"factory": "tests.test_job:narrow", "kwargs": {"width": 1}},
                "loss": {"name": "logistic"},
            },
            None,
            "the model has 1 outputs, but the labels of .* go up to 2$",
        ),
        (
            {"model": {"factory": "tests.test_job:narrow", "kwargs": {"width": 2}}},
            None,
            "the model has 2 outputs, but the labels of .* go up to 2$",
        ),
    ],
)
def test_outputs_that_do_not_fit(
    changes: dict[str, Any], classes: list[int] | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        checked(tiny(tmp_path), classes, **changes)


def test_classes_of_the_job_are_those_of_the_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="regression targets"):
        checked(tiny(tmp_path, regression=True), [0, 1], model={"name": "linear"})
    with pytest.raises(DataError, match="has the label 3"):
        checked(tiny(tmp_path), [0, 3])


def test_dtype_of_the_parameters(tmp_path: Path) -> None:
    """All that is floating becomes float64; without it, a factory's choice stands."""
    data, factory = tiny(tmp_path), "tests.test_job:Mixed"
    for dtype, expected in (("float64", torch.float64), ("float32", torch.float32)):
        model = checked(data, model={"factory": factory, "dtype": dtype}).model
        assert model.parameters.dtype == expected
        module: Any = model.module
        assert module.mean.dtype == expected
        assert (module.calls.dtype, module.turn.dtype) == (torch.int64, torch.complex64)
    chosen = {"factory": "torch.nn:Linear", "kwargs": {"in_features": 6, "out_features": 3}}
    chosen["kwargs"]["dtype"] = torch.float64  # type: ignore[index]
    config = configured(data, model={"name": "softmax"})
    model = config.model.model_copy(update={"name": None, **chosen})
    parts = job.assemble(config.model_copy(update={"model": model}))
    assert parts.model.parameters.dtype == torch.float64
    precheck.check(parts)


@pytest.mark.parametrize("exchange", ["server", "collective"])
def test_ridge_reaches_its_closed_form(tmp_path: Path, exchange: str) -> None:
    """Gradient descent on all rows, dealt to two workers, until nothing changes."""
    data, l2 = tiny(tmp_path, rows=24, regression=True), 0.05
    config = configured(
        data,
        model={"name": "linear", "dtype": "float64"},
        loss={"name": "mse", "l2": l2},
        scheme={"name": "bsp", "exchange": exchange},
        optimizer={"name": "SGD", "lr": 0.2},
        train={"epochs": 400, "batch_size": 12},
        evaluate={"every_epochs": 1000},
    )
    done = train(config, tmp_path / "run")
    with h5py.File(data) as file:
        x, y = (torch.from_numpy(file[f"train/{name}"][()]).double() for name in "xy")
    wide = torch.cat([x, torch.ones(24, 1, dtype=torch.float64)], 1)
    system = 2 / 24 * wide.T @ wide + l2 * torch.eye(7, dtype=torch.float64)
    solution = torch.linalg.solve(system, 2 / 24 * wide.T @ y)[:, 0]
    parameters = done.coordinator.server.model.parameters
    torch.testing.assert_close(parameters, solution, rtol=1e-10, atol=1e-12)
    last = done.rows("step")[-1]["loss"]
    rest = float(((wide @ solution - y[:, 0]) ** 2).mean())
    assert last == pytest.approx(rest + l2 / 2 * float(solution @ solution), rel=1e-9)


def costs(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """log(1 + exp(-margin)) of each sample, by hand, of logistic and of softmax regression."""
    outputs = len(w) // 7
    z = x.double() @ w[: 6 * outputs].reshape(outputs, 6).T + w[6 * outputs :]
    margin = z[:, -1] if outputs == 1 else z[:, 1] - z[:, 0]
    return torch.log1p(torch.exp(torch.where(y == 1, -margin, margin)))


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_classifiers_reach_a_point_without_slope(tmp_path: Path, name: str) -> None:
    """The objective's slope is none there; the test loss is told without the penalty."""
    loss = "logistic" if name == "logistic" else "cross_entropy"
    data = tiny(tmp_path, rows=30)
    config = configured(
        data,
        data={"path": str(data), "classes": [0, 2]},
        model={"name": name, "dtype": "float64"},
        loss={"name": loss, "l2": 0.1},
        optimizer={"name": "SGD", "lr": 1.0},
        train={"epochs": 150, "batch_size": 30},
        evaluate={"every_epochs": 1000},
    )
    done, splits = train(config, tmp_path / "run", workers=1), job.assemble(config).data
    assert len(splits.train) < 30
    w = done.coordinator.server.model.parameters.clone().requires_grad_()
    mean = costs(w, *splits.train.range(0, len(splits.train))).mean()
    objective = mean + 0.05 * (w**2).sum()
    (slope,) = torch.autograd.grad(objective, w)
    assert float(slope.norm()) < 1e-9
    assert done.rows("step")[-1]["loss"] == pytest.approx(objective.item(), rel=1e-12)
    found, progress = costs(w, *splits.test.range(0, len(splits.test))), done.coordinator.progress
    assert progress.test_loss == pytest.approx(found.mean().item(), rel=1e-12)
    right = found < math.log(2)
    assert progress.test_accuracy == pytest.approx(right.double().mean().item())


def saved(run: Path) -> dict[str, Tensor]:
    latest = CheckpointStore(run / "checkpoints", 1).load_latest()
    assert latest is not None
    parameters: dict[str, Tensor] = latest[1]["parameters"]
    return parameters


def test_float64_resumes_bitwise(tmp_path: Path) -> None:
    path = job_file(
        tmp_path,
        tiny(tmp_path),
        model={"name": "mlp", "kwargs": {"hidden": [5]}, "dtype": "float64"},
        loss={"name": "cross_entropy", "l2": 1e-2},
        optimizer={"name": "Adam", "lr": 0.01},
    )
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert call("run", path, "--simulate", "--out", whole)[0] == 0
    assert call("run", path, "--simulate", "--out", run, "--set", "stop.steps=3")[0] == 0
    early = saved(run)
    assert 'model.dtype is "float32", and was "float64"' in refused(
        "run", "--resume", run, "--set", "model.dtype=float32"
    )
    assert call("run", "--resume", run, "--set", "stop.steps=null")[0] == 0
    expected, found = saved(whole), saved(run)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert value.dtype == torch.float64
        assert not torch.equal(value.float().double(), value)  # digits that float32 lacks
        assert torch.equal(found[name], value)
        assert not torch.equal(early[name], value)


@pytest.mark.parametrize(
    ("gpus", "local_rank", "chosen"),
    [(1, 0, 0), (1, 1, 0), (1, 5, 0), (4, 0, 0), (4, 3, 3), (4, 4, 0), (4, 6, 2)],
)
@pytest.mark.parametrize("kind", ["cuda", "auto"])
def test_gpu_of_a_worker(
    kind: str, gpus: int, local_rank: int, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only one that it sees, or the one of its number among the workers on the host."""
    set_to: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", set_to.append)
    device = torch.device("cuda", chosen)
    assert job.choose_device(kind, local_rank) == device
    assert set_to == [device]


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert job.choose_device("auto", 0) == torch.device("cpu")
    with pytest.raises(ModelError, match=r"device\.kind is cuda, but torch sees no GPU"):
        job.choose_device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert job.choose_device("cpu", 3) == torch.device("cpu")


@pytest.mark.parametrize(
    ("wanted", "user", "share", "threads"),
    [
        (3, "5", 7, 3),
        (None, "5", 7, 5),
        (None, "", 7, 7),
        (None, "0", 7, 7),
        (None, "many", 7, 7),
        (None, None, 7, 7),
        (None, None, 0, 1),
    ],
)
def test_threads(
    wanted: int | None, user: str | None, share: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's value, else the user's, else the rank's share of the cores."""
    set_to: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if user is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", user)
    assert job.set_threads(wanted, share) == threads
    assert set_to == [threads]


def test_no_accuracy_to_stop_at(tmp_path: Path) -> None:
    config = configured(
        tiny(tmp_path, regression=True),
        model={"name": "linear"},
        loss={"name": "mse"},
        stop={"test_accuracy": 0.9},
    )
    with pytest.raises(DataError, match=r"no accuracy to stop at: use stop.test_loss or"):
        precheck.check(job.assemble(config))
