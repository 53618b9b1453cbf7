"""The solver's schemes, from a job to its end: the bits of a serial run, resumed anywhere."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from psopt import job, precheck
from psopt.crew.base import Slices, Ticket
from psopt.crew.faults import Faults
from psopt.data import DataError
from psopt.models.flat import parameters_sha256
from psopt.optim.cg import CG, CGOptions
from psopt.optim.lbfgs import LBFGS, LBFGSOptions
from psopt.optim.solver import Solver
from psopt.schemes.quanta import Scale
from tests.commands import no_rank
from tests.training import Trained, configured, fresh_module, tiny, train

__all__ = ["no_rank"]

ROWS, EPOCHS = 22, 14
MLP = {"name": "mlp", "kwargs": {"hidden": [5]}}
SECTIONS: dict[str, dict[str, Any]] = {
    "sandblaster": {"name": "sandblaster"},
    "lbfgs_static": {"name": "lbfgs_static"},
    "cg": {"name": "cg"},
    "hager-zhang": {"name": "cg", "beta": "hager-zhang", "slicing": "static"},
}
NORMED = {"factory": "tests.zoo:normed", "kwargs": {"dropout": 0.3}}
REPLACING = {"factory": "tests.zoo:replacing", "kwargs": {}}


def small(tmp_path: Path, scheme: dict[str, Any], **changes: Any) -> Any:
    return configured(
        tiny(tmp_path, rows=ROWS),
        **{
            "scheme": scheme,
            "model": MLP,
            "optimizer": None,
            "train": {"epochs": EPOCHS, "batch_size": 4},
            **changes,
        },
    )


def uneven(worker: int, samples: int) -> float:
    return 0.01 * samples * (1 + 1.7 * worker)


class Loop:
    """The mean loss of a job and its gradient by a plain loop over the slices of epoch 0."""

    def __init__(self, config: Any) -> None:
        parts = job.assemble(config)
        plan, data = parts.tickets().plan(0), parts.data.train
        self.slices = [data.batch(plan.rows(k)) for k in range(len(plan))]
        self.module = fresh_module(config)
        self.parameters = list(self.module.parameters())
        self.l2, self.largest = config.loss.l2, 1.0 / len(self.slices)

    def at(self, point: torch.Tensor) -> list[tuple[float, torch.Tensor]]:
        """Each slice's sum of losses, and what its gradient adds to the mean, float64."""
        torch.nn.utils.vector_to_parameters(point.clone(), self.parameters)
        found = []
        for x, y in self.slices:
            x = x.to(point.dtype)
            loss = cross_entropy(self.module(x), y)
            flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, self.parameters)])
            found.append((loss.item() * len(y), flat.double() * (len(y) / ROWS)))
        return found

    def quantised(self, point: torch.Tensor) -> tuple[float, torch.Tensor]:
        """The parts rounded to whole quanta, and added up."""
        parts = self.at(point)
        scale = Scale.around(self.largest, len(parts), torch.float32)
        self.largest = max(float(part.abs().max()) for _, part in parts)
        assert scale.better(self.largest) is None
        (quantum,) = scale.quanta
        total = sum(torch.round(part / quantum) for _, part in parts)
        assert isinstance(total, torch.Tensor)
        loss = sum(loss for loss, _ in parts) / ROWS
        return loss, (total * quantum).to(point.dtype)

    def plain(self, point: torch.Tensor) -> tuple[float, torch.Tensor]:
        """With the penalty, in float64."""
        parts = self.at(point)
        gradient = torch.stack([part for _, part in parts]).sum(0) + self.l2 * point
        return sum(loss for loss, _ in parts) / ROWS + self.l2 / 2 * float(point @ point), gradient


def solver_of(scheme: dict[str, Any], start: torch.Tensor) -> Solver:
    return CG(start, CGOptions()) if scheme["name"] == "cg" else LBFGS(start, LBFGSOptions())


def start_of(config: Any) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in fresh_module(config).parameters()])


@pytest.mark.parametrize("name", ["sandblaster", "lbfgs_static", "cg"])
def test_a_run_is_the_serial_solver(name: str, tmp_path: Path) -> None:
    config = small(tmp_path, SECTIONS[name])
    loop, solver = Loop(config), solver_of(SECTIONS[name], start_of(config))
    losses = []
    for _ in range(EPOCHS):
        loss, gradient = loop.quantised(solver.ask())
        solver.tell(loss, gradient)
        losses.append(loss)
    for workers in (1, 3):
        done = train(config, tmp_path / f"run{workers}", workers=workers, compute=uneven)
        assert (done.status, done.reason) == ("completed", "epochs")
        assert done.sha == parameters_sha256(solver.best[1])
        assert [row["loss"] for row in done.rows("step")] == pytest.approx(losses, rel=1e-14)


@pytest.mark.parametrize("name", SECTIONS)
def test_float64_and_a_penalty(name: str, tmp_path: Path) -> None:
    """Against sums that nothing was rounded for."""
    config = small(
        tmp_path,
        SECTIONS[name],
        model={"name": "softmax", "dtype": "float64"},
        loss={"name": "cross_entropy", "l2": 0.01},
        train={"epochs": 200, "batch_size": 4},
    )
    loop = Loop(config)
    loop.module.double()
    done = train(config, tmp_path / "run", workers=3)
    solver = LBFGS(start_of(config).double(), LBFGSOptions(gradient_tolerance=1e-9))
    while not solver.done:
        solver.tell(*loop.plain(solver.ask()))
    parameters = done.coordinator.server.model.parameters
    assert parameters.dtype == torch.float64
    assert done.reason == "converged (gradient)"
    assert torch.allclose(parameters, solver.best[1], atol=1e-5)
    loss, gradient = loop.plain(parameters)
    last = done.rows("step")[-1]
    assert last["objective"] == pytest.approx(loss, rel=1e-14)
    assert last["gradient_max"] == pytest.approx(float(gradient.abs().max()), abs=1e-15)
    first = done.rows("step")[0]["gradient_max"]
    assert last["gradient_max"] <= 1e-6 * first


BATCHES: list[dict[str, Any]] = [{}, {"batch": 8, "iterations": 2}]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("model", [MLP, NORMED, REPLACING])
def test_who_computes_does_not_show(
    model: dict[str, Any], batch: dict[str, Any], tmp_path: Path
) -> None:
    """Sandblaster and a fixed split, one worker and many, dynamic and static CG."""
    for pair in (
        [{"name": "sandblaster"}, {"name": "sandblaster", "slices": 2}, {"name": "lbfgs_static"}],
        [{"name": "cg", "slicing": "dynamic"}, {"name": "cg", "slicing": "static"}],
    ):
        found = set()
        for scheme in pair:
            for workers in (1, 5):
                config = small(tmp_path, {**scheme, **batch}, model=model)
                done = train(config, tmp_path / "run", workers=workers, compute=uneven)
                rows = [(r["loss"], r["accuracy"], r["epoch"]) for r in done.rows("step")]
                tests = [(r["test_loss"], r["test_accuracy"]) for r in done.rows("evaluation")]
                found.add((done.sha, repr(rows), repr(tests)))
                (tmp_path / "run" / "metrics.jsonl").unlink()
        assert len(found) == 1


def test_deaths_do_not_show(tmp_path: Path) -> None:
    config = small(tmp_path, SECTIONS["sandblaster"])
    whole = train(config, tmp_path / "whole", workers=1)
    for scheme in ("sandblaster", "lbfgs_static"):
        config = small(tmp_path, SECTIONS[scheme])
        done = train(
            config,
            tmp_path / scheme,
            workers=4,
            compute=uneven,
            faults=Faults(deaths={1: 0.33, 3: 1.02}),
        )
        assert done.crew.workers == (0, 2)
        assert done.sha == whole.sha


def test_rows_of_a_run(tmp_path: Path) -> None:
    done = train(small(tmp_path, SECTIONS["sandblaster"]), tmp_path / "run")
    rows = done.rows("step")
    assert [row["step"] for row in rows] == list(range(1, EPOCHS + 1))
    assert [row["epoch"] for row in rows] == list(range(1, EPOCHS + 1))
    assert [row["samples"] for row in rows] == [ROWS * k for k in range(1, EPOCHS + 1)]
    iterations = [row["iteration"] for row in rows]
    assert iterations[0] == 0
    assert all(b - a in (0, 1) for a, b in pairwise(iterations))
    objectives = [row["objective"] for row in rows]
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[-1] < 0.7 * objectives[0]
    assert all(row["gradient_max"] > 0 for row in rows)
    assert all(0 <= row["accuracy"] <= 1 for row in rows)
    assert {(row["staleness"], row["weight"], row["worker"]) for row in rows} == {(0, 1.0, None)}


def points(done: Trained) -> list[tuple[bytes, tuple[Any, ...]]]:
    """Parameters and slices of each evaluation."""
    found: dict[int, tuple[bytes, set[Any]]] = {}
    for given in done.crew.given:
        if isinstance(given.task, Slices):
            key = given.parameters.numpy().tobytes()
            found.setdefault(given.task.version, (key, set()))[1].update(given.task.tickets)
    return [(key, tuple(sorted(tickets))) for _, (key, tickets) in sorted(found.items())]


@pytest.mark.parametrize("name", ["sandblaster", "cg"])
def test_mini_batches(name: str, tmp_path: Path) -> None:
    """Whole slices of a seeded order; each batch begins where the one before has ended, evaluated anew."""
    scheme = {**SECTIONS[name], "batch": 9, "iterations": 2}
    changes = {"train": {"epochs": 9, "batch_size": 4}, "loss": {"l2": 0.02}}
    done = train(small(tmp_path, scheme, **changes), tmp_path / "run")
    course = points(done)
    assert {len(tickets) for _, tickets in course} == {2}
    batches = list(dict.fromkeys(tickets for _, tickets in course))
    assert [(t[0].epoch, t[0].batch) for t in batches] == [
        (k // 3, 2 * (k % 3)) for k in range(len(batches))
    ]
    assert len(batches) > 4
    for (_, old), (after, new) in pairwise(course):
        if new != old:
            assert after in [point for point, tickets in course if tickets == old]
    for batch in batches[:-1]:
        first, *others = [
            row for row, (_, t) in zip(done.rows("step"), course, strict=True) if t == batch
        ]
        assert others[-1]["iteration"] - first["iteration"] == 2
    assert all("objective" not in row for row in done.rows("step"))
    assert done.reason == "epochs"


def test_a_batch_is_of_whole_slices(tmp_path: Path) -> None:
    for batch, slices in ((4, 1), (8, 2), (20, 5)):
        config = small(tmp_path, {"name": "sandblaster", "batch": batch}, stop={"steps": 2})
        done = train(config, tmp_path / str(batch))
        assert {len(tickets) for _, tickets in points(done)} == {slices}
    config = small(tmp_path, {"name": "cg", "batch": 24})
    with pytest.raises(DataError, match=r"has 22 training samples: scheme.batch may be no more"):
        precheck.check(job.assemble(config))


def test_reasons(tmp_path: Path) -> None:
    def reason(**options: Any) -> str:
        config = small(
            tmp_path, {"name": "sandblaster", **options}, train={"epochs": 300, "batch_size": 4}
        )
        done = train(config, tmp_path / "run")
        assert done.status == "completed"
        return done.reason

    assert reason(gradient_tolerance=0.3) == "converged (gradient)"
    assert reason(objective_tolerance=0.2) == "converged (objective)"
    assert reason(gradient_tolerance=0.3, batch=8) == "epochs"
    assert reason(gradient_tolerance=0.0) in ("precision limit", "epochs")


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("batch", BATCHES)
def test_not_finite_at_the_start(name: str, batch: dict[str, Any], tmp_path: Path) -> None:
    config = small(tmp_path, {**SECTIONS[name], **batch})
    done = train(config, tmp_path / "run", workers=3, bad={Ticket(0, 1)})
    where = "mini-batch 0" if batch else "the start"
    assert done.status == "diverged"
    assert done.reason == f"the loss or its gradient is not finite at {where}"
    assert done.rows("step") == []


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("model", [NORMED, REPLACING])
@pytest.mark.parametrize("name", ["sandblaster", "cg"])
def test_resume_anywhere(
    name: str, model: dict[str, Any], batch: dict[str, Any], tmp_path: Path
) -> None:
    """From between any ask and tell, on another number of workers: bitwise the undisturbed run."""
    scheme = {**SECTIONS[name], **batch}
    config = small(tmp_path, scheme, model=model)
    whole = train(config, tmp_path / "whole", workers=2)
    steps = whole.coordinator.progress.step
    assert steps >= EPOCHS
    figures = ("step", "epoch", "samples", "loss", "accuracy", "iteration", "gradient_max")
    expected = [[row[key] for key in figures] for row in whole.rows("step")]
    for k in range(1, steps, 1 if name == "sandblaster" and model is REPLACING else 4):
        folder = tmp_path / f"run{k}"
        stopped = small(tmp_path, scheme, model=model, stop={"steps": k})
        first = train(stopped, folder, workers=2)
        second = train(config, folder, workers=1 + k % 4, tree=first.saved())
        assert second.sha == whole.sha
        assert [[row[key] for key in figures] for row in second.rows("step")] == expected
        for buffer, value in whole.saved()["buffers"].items():
            assert torch.equal(second.saved()["buffers"][buffer], value), buffer


def test_checkpoints_and_evaluations_do_not_show(tmp_path: Path) -> None:
    """What is saved and measured is the best point so far; the solver goes on from its own."""
    shas = set()
    for number, changes in enumerate(
        [{}, {"checkpoint": {"every_steps": 1}}, {"evaluate": {"every_epochs": 5.0}}]
    ):
        config = small(tmp_path, SECTIONS["sandblaster"], model=REPLACING, **changes)
        shas.add(train(config, tmp_path / str(number)).sha)
    assert len(shas) == 1


def test_statistics_are_those_of_the_parameters(tmp_path: Path) -> None:
    """Also where the last point evaluated is the best one."""
    done = train(small(tmp_path, SECTIONS["sandblaster"], model=NORMED), tmp_path / "run")
    config, saved = done.coordinator.config, done.saved()
    module = fresh_module(config)
    module.load_state_dict({**saved["parameters"], **saved["buffers"]})
    slices = [x for x, _ in Loop(config).slices]
    torch.optim.swa_utils.update_bn(slices, module)  # type: ignore[arg-type]
    for name, value in module.named_buffers():
        assert torch.equal(saved["buffers"][name], value), name


def test_going_on_with_another_solver_is_refused(tmp_path: Path) -> None:
    """A fixed split goes on as Sandblaster, bit for bit; other options of the solver do not."""
    config = small(tmp_path, SECTIONS["lbfgs_static"])
    whole = train(config, tmp_path / "whole")
    half = small(tmp_path, SECTIONS["lbfgs_static"], stop={"steps": 6})
    tree = train(half, tmp_path / "run").saved()
    parts = job.assemble(small(tmp_path, SECTIONS["sandblaster"]))
    precheck.check_checkpoint(parts, tree)
    assert train(parts.config, tmp_path / "run", tree=tree).sha == whole.sha
    parts = job.assemble(small(tmp_path, {"name": "cg"}))
    with pytest.raises(ValueError, match="leave the scheme as it was, or start a new run"):
        precheck.check_checkpoint(parts, tree)
    tree = train(
        small(tmp_path, {"name": "bsp"}, optimizer={"name": "SGD", "lr": 0.1}), tmp_path / "b"
    ).saved()
    with pytest.raises(ValueError, match="scheme sandblaster cannot go on"):
        precheck.check_checkpoint(job.assemble(small(tmp_path, {"name": "sandblaster"})), tree)
