"""The job files that come with the project, and the JSON schema that editors check job files with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from psopt import job
from psopt.config import job_schema, sweep_schema
from psopt.config.torch_options import OPTIMIZERS, SCHEDULERS
from psopt.schemes import SCHEMES
from psopt.sweep.plan import plan
from tests.training import ROOT

SCHEMA = ROOT / "psopt" / "config" / "job.schema.json"
SWEEP_SCHEMA = SCHEMA.with_name("sweep.schema.json")
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))
SECTIONS = ("OptimizerConfig", "SchedulerConfig")
MODELINE = "# yaml-language-server: $schema="


def without_torch(text: str) -> str:
    """The schema with the names that depend on the version of torch left out."""
    schema = json.loads(text)
    for section in SECTIONS:
        schema["$defs"][section]["properties"]["name"]["enum"] = "names of torch"
    return json.dumps(schema, indent=2)


def test_shipped_schema_is_up_to_date() -> None:
    """`make schema` writes it."""
    shipped = SCHEMA.read_text(encoding="utf-8")
    assert without_torch(shipped) == without_torch(job_schema(job.Job))
    enums = [json.loads(shipped)["$defs"][s]["properties"]["name"]["enum"] for s in SECTIONS]
    assert {"SGD", "Adam"} <= set(enums[0]) & set(OPTIMIZERS)
    assert {"StepLR"} <= set(enums[1]) & set(SCHEDULERS)


def test_shipped_schema_of_sweeps_is_up_to_date() -> None:
    assert SWEEP_SCHEMA.read_text(encoding="utf-8") == sweep_schema()


def test_there_are_configs() -> None:
    assert len(CONFIGS) >= 3


@pytest.fixture(params=CONFIGS, ids=lambda path: path.name)
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_config_is_valid(path: Path) -> None:
    config = job.load(path)
    assert config.name.replace("-", "_") == path.stem


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_word_changes_the_scheme(scheme: str, path: Path) -> None:
    """From any that has a scheme alone; an optimizer where the file has none and the scheme needs one."""
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    if written["scheme"].keys() == {"name"}:
        overrides = [f"scheme.name={scheme}"]
        if "optimizer" not in written:
            overrides.append("optimizer={name: SGD, lr: 0.1}")
        assert job.load(path, overrides).scheme.name == scheme


def schema_of(path: Path) -> Path:
    """What the first line of a file names."""
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith(MODELINE)
    return (path.parent / first.removeprefix(MODELINE)).resolve()


def test_config_names_the_schema(path: Path) -> None:
    assert schema_of(path) == SCHEMA


def test_keys_of_config_are_in_the_schema(path: Path) -> None:
    """What an editor completes is what the file says."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for key, value in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        assert key in schema["properties"]
        if key == "scheme":
            mapping = schema["properties"]["scheme"]["discriminator"]["mapping"]
            definition = schema["$defs"][mapping[value["name"]].rpartition("/")[2]]
            assert set(value) <= set(definition["properties"])


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda path: path.name)
def test_sweep_is_valid(sweep: Path) -> None:
    """Every job that it stands for."""
    planned = plan(sweep)
    assert planned.config.name == sweep.stem
    assert (planned.repeated, planned.idle) == (0, ())
    assert {"scheme.name", "seed"} < set(planned.config.swept)
    assert schema_of(sweep) == SWEEP_SCHEMA


def test_there_are_sweeps() -> None:
    assert [path.stem for path in SWEEPS] == ["rates", "speedup"]
