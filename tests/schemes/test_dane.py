from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from psopt import job, precheck
from psopt.config import dump_job
from psopt.data import DataError
from psopt.data.shards import Shard
from psopt.schemes.dane import Dane, DaneState, GuardedDane
from tests.commands import call, no_rank
from tests.schemes.ridge import L2, ridge
from tests.threads import one_thread
from tests.training import Trained, configured, job_file, tiny, train

__all__ = ["no_rank", "one_thread"]


def at(config: Any, steps: int) -> Any:
    """The same job, stopped after so many rounds."""
    return config.model_copy(update={"stop": config.stop.model_copy(update={"steps": steps})})


def objectives(done: Trained) -> list[float]:
    return [row["objective"] for row in done.rows("step")]


def rounds_to(done: Trained, least: float, gap: float = 1e-6) -> int:
    return next(k for k, value in enumerate(objectives(done), 1) if value - least < gap)


def network(data: Path, /, **changes: Any) -> Any:
    """LeNet-5 or another network; each round has to lower the objective."""
    scheme = {"name": "dane", "shards": 4, "safeguard": True, "local": {"passes": 5}}
    sections = {"model": {"name": "mlp"}, "scheme": scheme, "optimizer": None}
    return configured(data, **{**sections, **changes})


@pytest.mark.parametrize(("eta", "mu", "shards"), [(1.0, 0.0, 3), (0.5, 0.2, 7)])
def test_a_round_on_a_quadratic(eta: float, mu: float, shards: int, tmp_path: Path) -> None:
    """w - eta sum_i s_i (H_i + (l2 + mu) I)^-1 g, eq. 16, with shards of 33, 33 and 34 samples and so on."""
    given = ridge(tmp_path, 100, 8)
    local = {"solver": "cg", "gamma": 1e-13, "passes": 400}
    scheme = {"shards": shards, "eta": eta, "mu": mu, "local": local}
    config = given.job(scheme, train={"epochs": 10**6, "batch_size": 20}, stop={"steps": 1})
    parts = job.assemble(config)
    w = parts.model.parameters.clone().numpy()
    done = train(config, tmp_path / "run", workers=2)
    way = np.zeros_like(w)
    for k in range(shards):
        rows = Shard(k, shards, "iid", config.seed).rows(parts.data.train)
        curved = given.hessian(rows) + (L2 + mu) * np.eye(8)
        way -= eta * len(rows) / 100 * np.linalg.solve(curved, given.gradient(w))
    found = done.coordinator.server.model.parameters.numpy()
    np.testing.assert_allclose(found, w + way, rtol=1e-10, atol=1e-12)
    (start,), (row,) = done.rows("start"), done.rows("step")
    assert start["objective"] == pytest.approx(given.objective(w), rel=1e-12)
    assert (start["step"], start["epoch"]) == (0, 1.0)
    assert row["objective"] == pytest.approx(given.objective(found), rel=1e-12)
    assert row["loss"] == pytest.approx(row["objective"], rel=1e-15)
    norm = np.linalg.norm(given.gradient(found))
    assert row["gradient_norm"] == pytest.approx(norm, rel=1e-9)
    assert row["mu"] == mu


def test_rounds_of_the_table(tmp_path: Path) -> None:
    """N = 6,000, m = 16, mu = 0: 10 rounds until F - F* < 1e-6."""
    given = ridge(tmp_path, 6000, 500, seed=1)
    config = given.job({"shards": 16}, stop={"steps": 10})
    done = train(config, tmp_path / "run")
    assert rounds_to(done, given.least) in (9, 10)  # as BLAS rounds
    assert objectives(done)[-1] - given.least < 1e-6


def test_small_shards_diverge_and_the_safeguard_holds_them(tmp_path: Path) -> None:
    given = ridge(tmp_path, 160, 30)
    lost = train(given.job({"shards": 32}, stop={"steps": 200}), tmp_path / "lost")
    assert lost.status == "diverged"
    values = objectives(lost)
    assert f"the objective is {values[-1]:.3g} after {len(values)} rounds" in lost.reason
    assert values[-1] > 1e3 * lost.rows("start")[0]["objective"]
    assert lost.coordinator.progress.refused == 0
    assert lost.coordinator.progress.step == len(values) > 1
    config = given.job({"shards": 32, "safeguard": True}, stop={"steps": 12})
    kept = train(config, tmp_path / "kept")
    values = [kept.rows("start")[0]["objective"], *objectives(kept)]
    assert all(later < value for value, later in pairwise(values))
    assert values[-1] - given.least < 3e-3 * (values[0] - given.least)
    rows = kept.rows("step")
    assert [row["mu"] for row in rows] == [0.0] * 12
    assert all(0.0 < row["step_size"] < 1.0 for row in rows[:6])


@pytest.mark.parametrize("mu", [0.0, 3.0])
def test_conjugate_rounds_are_conjugate_gradients(mu: float, tmp_path: Path) -> None:
    """On a quadratic: those preconditioned by the shards' inverse Hessians, whether full steps are
    too long (mu = 0, small shards) or too short."""
    given = ridge(tmp_path, 90, 6)
    local = {"solver": "cg", "gamma": 1e-13, "passes": 400}
    scheme = {"shards": 9, "safeguard": True, "conjugate": True, "mu": mu, "local": local}
    config = given.job(scheme, stop={"steps": 6})
    parts = job.assemble(config)
    w = parts.model.parameters.clone().numpy()
    done = train(config, tmp_path / "run", workers=2)
    rows = [Shard(k, 9, "iid", config.seed).rows(parts.data.train) for k in range(9)]
    h, penalty = given.hessian() + L2 * np.eye(6), (L2 + mu) * np.eye(6)
    p: Any = sum(len(part) / 90 * np.linalg.inv(given.hessian(part) + penalty) for part in rows)
    way, before, wanted = np.zeros(6), np.inf, []
    for _ in range(6):
        g = given.gradient(w)
        now = g @ p @ g
        way, before = p @ g + now / before * way, now
        w = w - g @ way / (way @ h @ way) * way
        wanted.append(given.objective(w) - given.least)
    found = [value - given.least for value in objectives(done)]
    np.testing.assert_allclose(found[:4], wanted[:4], rtol=0.02)
    assert found[5] < 1e-5 * found[0]
    alone = train(given.job({**scheme, "conjugate": False}, stop={"steps": 6}), tmp_path / "alone")
    assert found[5] < 0.1 * (objectives(alone)[-1] - given.least)
    steps = [row["step_size"] for row in done.rows("step")]
    assert min(steps[:4]) > 1.0 if mu else max(steps[:4]) < 1.0


def test_a_direction_that_leads_nowhere_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the averaged way itself is searched, then mu is raised, and nothing is left of the past."""
    given = ridge(tmp_path, 90, 6)
    scheme = {"shards": 9, "safeguard": True, "conjugate": True, "mu": 0.1}
    tried: list[tuple[int, torch.Tensor, float, bool]] = []
    descend = GuardedDane._descend

    def fails_twice(self: Any, context: Any, state: Any, start: Any, way: Any, slope: float) -> Any:
        assert torch.equal(context.server.vectors[0], start)
        tried.append((state.round, way.clone(), state.proximal, state.direction is not None))
        if [round_ for round_, *_ in tried].count(2) in (1, 2) and state.round == 2:
            context.place(start + way)
            self.measure(context, state)
            return None
        return descend(self, context, state, start, way, slope)

    monkeypatch.setattr(GuardedDane, "_descend", fails_twice)
    done = train(given.job(scheme, stop={"steps": 5}), tmp_path / "run", workers=2)
    third = [entry for entry in tried if entry[0] == 2]
    assert [(mu, kept) for _, _, mu, kept in third] == [(0.1, True), (0.1, True), (0.2, False)]
    assert not torch.allclose(third[0][1], third[1][1])
    assert [row["mu"] for row in done.rows("step")] == [0.1, 0.1, 0.2, 0.1, 0.1]
    assert objectives(done) == sorted(objectives(done), reverse=True)


def test_directions() -> None:
    """Of hand-made numbers: bent by Hestenes and Stiefel's beta, or not where that would not lead down."""
    scheme = Dane(name="dane", safeguard=True, conjugate=True)
    way, gradient = torch.tensor([-1.0, -1.0]), torch.tensor([2.0, 1.0])
    state = DaneState(1, gradient=gradient)

    def found(last: list[float], last_gradient: list[float]) -> list[tuple[list[float], float]]:
        state.direction, state.direction_gradient = torch.tensor(last), torch.tensor(last_gradient)
        return [(p.tolist(), slope) for p, slope in scheme._directions(state, way, -3.0)]

    plain = ([-1.0, -1.0], -3.0)
    assert [p.tolist() for p, _ in scheme._directions(state, way, -3.0)] == [plain[0]]
    # y = (1, 0): beta = 1 / <p, y>
    assert found([2.0, -4.0], [1.0, 1.0]) == [([0.0, -3.0], -3.0), plain]
    assert found([-2.0, 1.0], [1.0, 1.0]) == [plain]  # no curvature along it
    assert found([-2.0, 1.0], [3.0, 1.0]) == [plain]  # beta is negative
    assert found([2.0, 1.75], [1.0, 1.0]) == [plain]  # hardly downhill: -0.125 of -3
    assert found([2.0, 1.25], [1.0, 1.0]) == [([0.0, -0.375], -0.375), plain]


def test_conjugate_rounds_start_anew_where_no_step_is_found(tmp_path: Path) -> None:
    loss = {"factory": "tests.schemes.test_lost:endless"}
    scheme = {"name": "dane", "safeguard": True, "conjugate": True}
    given = {"model": {"name": "softmax"}, "scheme": scheme}
    done = train(
        network(tiny(tmp_path), **given, loss=loss, stop={"steps": 6}, train=LONG), tmp_path
    )
    values = [done.rows("start")[0]["objective"], *objectives(done)]
    assert all(later < value for value, later in pairwise(values))
    assert done.rows("step")[0]["mu"] > 0.0


def test_conjugate_needs_the_search(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"conjugate needs safeguard: true"):
        network(tiny(tmp_path), scheme={"name": "dane", "conjugate": True})


def test_the_safeguard_raises_mu_where_there_is_no_step(tmp_path: Path) -> None:
    """Local problems that have no minimum without it; after a full step it is halved."""
    loss = {"factory": "tests.schemes.test_lost:endless"}
    given = {"model": {"name": "softmax"}, "scheme": {"name": "dane", "safeguard": True}}
    config = network(tiny(tmp_path), **given, loss=loss, stop={"steps": 6}, train=LONG)
    done = train(config, tmp_path / "run")
    values = [done.rows("start")[0]["objective"], *objectives(done)]
    assert all(later < value for value, later in pairwise(values))
    weights = [row["mu"] for row in done.rows("step")]
    assert weights[0] > 0.0
    assert weights[1:] == [weights[0] / 2**k for k in range(1, 6)]


def test_diverged_is_status_3(tmp_path: Path, no_rank: None) -> None:
    given = ridge(tmp_path, 160, 30)
    config = given.job({"shards": 32}, stop={"steps": 200})
    path = tmp_path / "job.yaml"
    path.write_text(job_file(tmp_path, given.path, **_sections(config)).read_text())
    status, _, _ = call("run", path, "--simulate", "--out", tmp_path / "run")
    assert status == 3
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "diverged"
    assert "at the start it was" in summary["reason"]


def _sections(config: Any) -> dict[str, Any]:
    whole = json.loads(config.model_dump_json(exclude_unset=True))
    return {key: whole[key] for key in ("model", "loss", "scheme", "optimizer", "train", "stop")}


@pytest.mark.parametrize("solver", ["lbfgs", "cg", "svrg", "sgd"])
def test_workers_leave_no_trace(solver: str, tmp_path: Path) -> None:
    """The bits, and the account, are those of the shards."""
    scheme = {"name": "dane", "shards": 5, "mu": 1.0, "local": {"solver": solver, "passes": 4}}
    config = network(tiny(tmp_path, rows=43), scheme=scheme, stop={"steps": 3}, train=LONG)
    runs = [train(config, tmp_path / f"{n}", workers=n) for n in (1, 2, 5, 7)]
    assert len({run.sha for run in runs}) == 1
    assert all(objectives(run) == objectives(runs[0]) for run in runs)
    epochs = [[row["epoch"] for row in run.rows("step")] for run in runs]
    assert all(each == epochs[0] for each in epochs)


LONG = {"epochs": 100_000, "batch_size": 4}


@pytest.mark.parametrize(
    "search", [{}, {"safeguard": True}, {"safeguard": True, "conjugate": True}]
)
def test_resume_after_every_round(search: dict[str, bool], tmp_path: Path) -> None:
    scheme = {"name": "dane", "shards": 3, **search, "local": {"passes": 4}}
    config = network(
        tiny(tmp_path, rows=43),
        model={"factory": "tests.zoo:normed"},
        scheme=scheme,
        train=LONG,
        checkpoint={"every_steps": 1},
    )
    whole = train(at(config, 5), tmp_path / "whole", workers=3)
    tree = None
    for steps in range(1, 6):
        done = train(at(config, steps), tmp_path / "run", workers=1 + steps % 3, tree=tree)
        tree = done.saved()
        precheck.check_checkpoint(job.assemble(config), tree)
        assert torch.equal(tree["scheme"]["gradient"], done.coordinator.state.gradient)
        assert tree["scheme"]["measured"] == objectives(done)[-1]
    assert done.sha == whole.sha
    for key in ("objective", "gradient_norm", "mu"):
        assert [r[key] for r in done.rows("step")] == [r[key] for r in whole.rows("step")]
    assert len(done.rows("start")) == 1
    for name, value in whole.saved()["buffers"].items():
        assert torch.equal(done.saved()["buffers"][name], value), name


def test_epochs_count_passes(tmp_path: Path) -> None:
    """Rounds of 4 passes in a solve and 1 for the gradient, after 1 at the start."""
    local = {"solver": "svrg", "passes": 4, "lr": 0.01}
    scheme = {"name": "dane", "shards": 3, "local": local}
    config = network(tiny(tmp_path, rows=43), scheme=scheme, train={"epochs": 20, "batch_size": 4})
    done = train(config, tmp_path / "run", workers=2)
    assert [row["epoch"] for row in done.rows("step")] == [6.0, 11.0, 16.0, 21.0]
    assert (done.reason, done.tickets.samples) == ("epochs", 21 * 43)
    first = train(at(config, 2), tmp_path / "half", workers=2)
    second = train(config, tmp_path / "half", workers=2, tree=first.saved())
    # The gradients of the shards, which are computed again, count no second time.
    assert [row["epoch"] for row in second.rows("step")] == [6.0, 11.0, 16.0, 21.0]
    assert second.sha == done.sha


def test_gradient_tolerance(tmp_path: Path) -> None:
    given = ridge(tmp_path, 400, 10)
    done = train(given.job({"shards": 4, "gradient_tolerance": 1e-6}), tmp_path / "run")
    assert (done.status, done.reason) == ("completed", "converged (gradient)")
    norms = [row["gradient_norm"] for row in done.rows("step")]
    first = np.linalg.norm(given.gradient(fresh(given.job({"shards": 4}))))
    assert norms[-1] <= 1e-6 * first < norms[-2]


def fresh(config: Any) -> Any:
    """The initial parameters."""
    return job.assemble(config).model.parameters.numpy()


def test_the_safeguard_ends_where_rounding_begins(tmp_path: Path) -> None:
    given = ridge(tmp_path, 400, 10)
    done = train(given.job({"shards": 4, "safeguard": True}), tmp_path / "run")
    assert done.status == "completed"
    assert done.reason.startswith("precision limit")
    assert objectives(done)[-1] - given.least < 1e-14
    assert done.coordinator.progress.step < 30
    again = train(done.coordinator.config, tmp_path / "run", tree=done.saved())
    assert (again.reason, again.sha) == (done.reason, done.sha)


def test_a_start_at_the_minimum(tmp_path: Path) -> None:
    data = tiny(tmp_path, rows=20)
    for safeguard in (False, True):
        scheme = {"name": "dane", "safeguard": safeguard}
        loss = {"factory": "tests.schemes.test_dane:flat_loss"}
        config = network(data, scheme=scheme, loss=loss)
        done = train(config, tmp_path / str(safeguard))
        assert (done.status, done.reason) == ("completed", "converged (gradient)")


def flat_loss() -> Any:
    return lambda output, y: (output * 0.0).sum() + 1.0


def test_a_local_solution_that_is_not_finite(tmp_path: Path) -> None:
    local = {"solver": "sgd", "passes": 40, "lr": 1e30}
    config = network(tiny(tmp_path), scheme={"name": "dane", "shards": 2, "local": local})
    done = train(config, tmp_path / "run")
    assert done.status == "diverged"
    assert "a local solution is not finite in round 1" in done.reason
    assert done.coordinator.server.model.parameters.isfinite().all()


@pytest.mark.parametrize("solver", ["lbfgs", "cg"])
def test_networks_get_better_every_round(solver: str, tmp_path: Path) -> None:
    scheme = {"name": "dane", "shards": 4, "safeguard": True}
    config = network(
        Path("sample"),
        model={"name": "lenet5"},
        data={"path": "sample", "train_limit": 256},
        scheme={**scheme, "local": {"solver": solver, "passes": 6}},
        train={"epochs": 1000, "batch_size": 64},
        stop={"steps": 4},
    )
    done = train(config, tmp_path / "run", workers=2)
    values = [done.rows("start")[0]["objective"], *objectives(done)]
    assert done.status == "completed"
    assert len(values) == 5
    assert all(later < value for value, later in pairwise(values))


def test_shards_by_label(tmp_path: Path) -> None:
    """Each worker sees few classes: with a safeguard the run goes on, and its objective falls."""
    scheme = {"name": "dane", "shards": 5, "cut": "by_label", "safeguard": True}
    config = network(
        Path("sample"),
        model={"name": "softmax"},
        data={"path": "sample", "train_limit": 300},
        loss={"name": "cross_entropy", "l2": 1e-3},
        scheme={**scheme, "local": {"passes": 5}},
        train={"epochs": 1000, "batch_size": 64},
        stop={"steps": 4},
    )
    done = train(config, tmp_path / "run", workers=2)
    values = [done.rows("start")[0]["objective"], *objectives(done)]
    assert (done.status, done.reason) == ("completed", "steps")
    assert all(later < value for value, later in pairwise(values))
    assert "cut: by_label" in dump_job(config)
    rows = job.assemble(config).data.train
    shards = [Shard(k, 5, "by_label", config.seed).rows(rows) for k in range(5)]
    assert max(len(np.unique(rows.y.numpy()[shard])) for shard in shards) <= 4


def test_data_that_cannot_be_cut(tmp_path: Path) -> None:
    few = network(tiny(tmp_path, rows=5), scheme={"name": "dane", "shards": 6})
    with pytest.raises(DataError, match=r"has 5 training samples: scheme.shards may be no more"):
        precheck.check(job.assemble(few))
    linear = {"name": "linear"}
    targets = tiny(tmp_path, regression=True)
    for cut, model in (("by_label", linear), ("iid", linear)):
        scheme = {"name": "dane", "cut": cut}
        parts = job.assemble(network(targets, model=model, loss={"name": "mse"}, scheme=scheme))
        if cut == "iid":
            precheck.check(parts)
            continue
        with pytest.raises(
            DataError, match=r"targets instead of class labels: use scheme.cut: iid"
        ):
            precheck.check(parts)


def test_more_workers_than_samples(tmp_path: Path) -> None:
    config = network(
        tiny(tmp_path, rows=3), scheme={"name": "dane", "mu": 1.0}, stop={"steps": 2}, train=LONG
    )
    done = train(config, tmp_path / "run", workers=7)
    assert done.coordinator.state.shards == 3
    assert len(objectives(done)) == 2


@pytest.mark.parametrize("solver", ["cg", "svrg"])
def test_a_pass_is_too_few_for_what_takes_two(solver: str, tmp_path: Path) -> None:
    scheme = {"name": "dane", "local": {"solver": solver, "passes": 1}}
    with pytest.raises(ValueError, match="'passes' must be at least 2"):
        network(tiny(tmp_path), scheme=scheme)
