"""What every scheme promises. A new scheme is tested here by its entry in SCHEMES and its YAML."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from psopt import job
from psopt.config import job_schema
from psopt.crew.faults import Faults
from psopt.data.plan import BatchPlan, Ticket
from psopt.optim.tree import flatten_tree
from psopt.schemes import SCHEMES
from psopt.schemes.base import Scheme
from psopt.schemes.shards import ShardScheme
from tests.replica.support import bits
from tests.training import ROOT, Trained, configured, tiny, train

NAMES = sorted(SCHEMES)


def yaml_of(name: str) -> Path:
    """The runnable job of the scheme: `configs/MODEL_NAME.yaml`."""
    found = sorted((ROOT / "configs").glob(f"*_{name}.yaml"))
    assert found, f"configs/ has no job of the scheme {name}"
    return found[0]


def section(name: str) -> dict[str, Any]:
    """The scheme's hyper-parameters, as its YAML has them."""
    scheme: dict[str, Any] = dataclasses.asdict(job.load(yaml_of(name)).scheme)  # type: ignore[call-overload]
    return scheme


def every_ticket(config: Any, rows: int) -> list[Ticket]:
    plan = BatchPlan(config.seed, 0, rows, config.train.batch_size)
    return [Ticket(e, k) for e in range(config.train.epochs) for k in range(len(plan))]


def job_of(name: str, data: Path, **changes: Any) -> Any:
    optimizer = {"name": "SGD", "lr": 0.05}
    return configured(data, scheme=section(name), optimizer=optimizer, **changes)


def uneven(worker: int, samples: int) -> float:
    return 0.01 * samples * (1 + 0.37 * worker)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_is_a_frozen_dataclass_of_its_own_name(name: str) -> None:
    scheme = job.load(yaml_of(name)).scheme
    assert type(scheme) is SCHEMES[name]
    assert isinstance(scheme, Scheme)
    assert scheme.name == name
    with pytest.raises(dataclasses.FrozenInstanceError):
        scheme.name = "other"
    assert type(scheme).__doc__


def test_unknown_and_mistyped_keys_are_refused(name: str, tmp_path: Path) -> None:
    data = tiny(tmp_path)
    with pytest.raises(ValidationError, match="no_such_key"):
        configured(data, scheme={**section(name), "no_such_key": 1})
    for key, value in section(name).items():
        if not isinstance(value, str):
            with pytest.raises(ValidationError, match=key):
                configured(data, scheme={**section(name), key: str(value)})


def test_schema_describes_every_field(name: str) -> None:
    schema = json.loads(job_schema(job.Job))
    reference = schema["properties"]["scheme"]["discriminator"]["mapping"][name]
    found = schema["$defs"][reference.rpartition("/")[2]]
    assert found["additionalProperties"] is False
    assert found["description"]
    for key, value in found["properties"].items():
        assert value.get("description"), f"{name}.{key} has no description"
    assert set(found["properties"]) == {f.name for f in dataclasses.fields(SCHEMES[name])}  # type: ignore[arg-type]


def kept(done: Trained) -> dict[str, Any]:
    """What a checkpoint keeps of a scheme's state."""
    return done.coordinator.scheme.export(done.coordinator.state)


def by_tickets(name: str) -> bool:
    """Whether the scheme is given tickets to work through; others count the samples of their own tasks."""
    return SCHEMES[name].needs_optimizer


def on_shards(name: str) -> bool:
    """Whether a step is a round of many gradient passes."""
    return issubclass(SCHEMES[name], ShardScheme)


def end(name: str) -> str:
    """Why a run ends that nothing else ends before."""
    return "one shot" if name == "one_shot" else "epochs"


@pytest.mark.parametrize("workers", [1, 3])
def test_epochs(name: str, workers: int, tmp_path: Path) -> None:
    """Every ticket is applied exactly once, versions rise (by one), and the job ends."""
    config = job_of(name, tiny(tmp_path, rows=22))
    done = train(config, tmp_path / "run", workers=workers, compute=uneven)
    assert (done.status, done.reason) == ("completed", end(name))
    assert done.tickets.finished or name == "one_shot"
    versions = [row["version"] for row in done.rows("step")]
    assert versions == sorted(set(versions))
    if by_tickets(name):
        assert sorted(done.applied) == every_ticket(config, 22)
        assert done.tickets.samples == 44
        assert versions == list(range(1, len(versions) + 1))
        assert versions[-1] == done.coordinator.server.version == done.coordinator.progress.step
    else:
        assert done.applied == []
        assert done.tickets.samples >= 44
    seconds = [row["seconds"] for row in done.rows("step")]
    assert seconds == sorted(seconds)


def test_state_is_plain(name: str, tmp_path: Path) -> None:
    done = train(job_of(name, tiny(tmp_path)), tmp_path / "run")
    structure, tensors = flatten_tree(kept(done))
    assert json.loads(json.dumps(structure)) == structure
    assert all(tensor.device.type == "cpu" for tensor in tensors)


def interrupted(name: str, tmp_path: Path, **changes: Any) -> Iterator[Trained]:
    """The first half, to an interruption; the second, by another number of workers."""
    epochs = 2 if by_tickets(name) else 5
    if on_shards(name):
        epochs, changes = 10_000, {"stop": {"steps": 5}, **changes}
    changes = {"train": {"epochs": epochs, "batch_size": 4}, **changes}
    config = job_of(name, tiny(tmp_path, rows=22), **changes)
    half = config.model_copy(update={"stop": config.stop.model_copy(update={"steps": 3})})
    first = train(half, tmp_path / "run", workers=3, compute=uneven)
    yield first
    yield train(config, tmp_path / "run", workers=2, compute=uneven, tree=first.saved())


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the metrics without what depends on the clock and on messages."""
    return {key: value for key, value in row.items() if key not in ("seconds", "version")}


def test_resume(name: str, tmp_path: Path) -> None:
    """State survives a checkpoint; no ticket is lost or repeated; metrics go on."""
    first, second = interrupted(name, tmp_path)
    assert (first.status, second.status) == ("completed", "completed")
    if name == "one_shot":
        assert (first.reason, second.reason) == ("one shot", "one shot")
        assert second.sha == first.sha
        return
    assert (first.reason, second.reason) == ("steps", "steps" if on_shards(name) else "epochs")
    if not by_tickets(name):
        whole = train(second.coordinator.config, tmp_path / "whole", workers=3, compute=uneven)
        assert second.sha == whole.sha
        rows = [[untimed(row) for row in done.rows("step")] for done in (second, whole)]
        assert rows[0] == rows[1]
        assert second.tickets.samples == whole.tickets.samples
    structure, tensors = flatten_tree(kept(second))
    saved, saved_tensors = flatten_tree(second.saved()["scheme"])
    assert saved == structure
    assert bits(saved_tensors) == bits(tensors)
    versions = [row["version"] for row in second.rows("step")]
    if by_tickets(name):
        assert sorted(first.applied + second.applied) == every_ticket(second.coordinator.config, 22)
        assert versions == list(range(1, len(versions) + 1))
    assert second.coordinator.progress.seconds > first.coordinator.progress.seconds > 0


def test_same_job_same_bits(name: str, tmp_path: Path) -> None:
    config = job_of(name, tiny(tmp_path))
    shas = {train(config, tmp_path / str(n), workers=3, compute=uneven).sha for n in range(2)}
    assert len(shas) == 1


def test_more_workers_than_samples(name: str, tmp_path: Path) -> None:
    config = job_of(name, tiny(tmp_path, rows=3), train={"epochs": 2, "batch_size": 1})
    done = train(config, tmp_path / "run", workers=7)
    exact = name == "giant"  # it fits three samples within the epochs, to a gradient of zero
    assert done.reason == ("converged (gradient)" if exact else end(name))
    if by_tickets(name):
        assert sorted(done.applied) == every_ticket(config, 3)


def test_learns(name: str, tmp_path: Path) -> None:
    epochs = 400 if on_shards(name) else 20
    config = job_of(name, tiny(tmp_path, rows=40), train={"epochs": epochs, "batch_size": 4})
    done = train(config, tmp_path / "run", workers=2)
    losses = [row["loss"] for row in done.rows("step")]
    if on_shards(name):
        losses.insert(0, done.rows("start")[0]["objective"])
    part = max(1, min(10, len(losses) // 4))
    share = 0.9 if name == "one_shot" else 0.6  # of samples so few, the shards know little
    assert sum(losses[-part:]) < share * sum(losses[:part])


def test_a_key_of_the_local_section_leaves_the_others_alone(name: str, tmp_path: Path) -> None:
    """They are as the scheme has them, and not as the section's class has them."""
    if not on_shards(name):
        return
    own = configured(tiny(tmp_path), scheme={"name": name}).scheme.local
    changed = configured(tiny(tmp_path), scheme={"name": name, "local": {"passes": 8}}).scheme.local
    assert changed == dataclasses.replace(own, passes=8)
    with pytest.raises(ValidationError, match="no_such_key"):
        configured(tiny(tmp_path), scheme={"name": name, "local": {"no_such_key": 1}})
    with pytest.raises(ValidationError, match="local"):
        configured(tiny(tmp_path), scheme={"name": name, "local": 5})


FACTORS = {
    "dane": ({"mu": 1e39}, {"eta": 1e39}, {"local": {"solver": "svrg", "lr": 1e39}}),
    "aide": ({"tau": 1e39},),
    "admm": ({"rho": 1e39},),
}


@pytest.mark.parametrize("scheme", FACTORS)
def test_factors_are_numbers_of_float32(scheme: str, tmp_path: Path) -> None:
    data = tiny(tmp_path)
    for options in FACTORS[scheme]:
        with pytest.raises(ValidationError, match="less than or equal to 1000"):
            configured(data, scheme={"name": scheme, **options})
    with pytest.raises(ValidationError, match="less than or equal to 1000"):
        configured(data, scheme={"name": scheme}, loss={"l2": 1e39})
    large = {"dane": {"mu": 1e30}, "aide": {"tau": 1e30}, "admm": {"rho": 1e30}}[scheme]
    config = configured(
        data, scheme={"name": scheme, **large}, loss={"l2": 1e30}, optimizer=None, stop={"steps": 2}
    )
    done = train(config, tmp_path / "run")
    assert done.coordinator.server.model.parameters.isfinite().all()


@pytest.mark.parametrize("seed", [1, 2])
def test_deaths(name: str, seed: int, tmp_path: Path) -> None:
    """Two of three workers die at random moments: synchronous methods end with the bits of the undisturbed run.

    In an asynchronous one every ticket is applied exactly once.
    """
    changes = {"stop": {"steps": 4}, "train": {"epochs": 10**4, "batch_size": 4}}
    config = job_of(name, tiny(tmp_path, rows=22), **({} if by_tickets(name) else changes))
    whole = train(config, tmp_path / "whole", workers=3, compute=uneven)
    draw = random.Random(seed)
    seconds = whole.coordinator.progress.seconds
    deaths = {w: draw.uniform(0.0, seconds) for w in draw.sample(range(3), 2)}
    done = train(config, tmp_path / "run", workers=3, compute=uneven, faults=Faults(deaths=deaths))
    assert (done.status, done.reason) == (whole.status, whole.reason)
    if by_tickets(name):
        assert sorted(done.applied) == every_ticket(config, 22)
    if name not in ("asp", "wasp"):
        assert done.sha == whole.sha
        assert done.tickets.samples == whole.tickets.samples
        assert [untimed(row) for row in done.rows("step")] == [
            untimed(row) for row in whole.rows("step")
        ]
        assert len(done.crew.workers) < 3
