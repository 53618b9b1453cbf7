from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from psopt.record import (
    CheckpointError,
    CheckpointStore,
    CheckpointWarning,
    ExportError,
    NotARun,
    RunDirectory,
    export,
)


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    net(torch.randn(4, 1, 5, 5))
    return net


def tree(net: torch.nn.Module) -> dict[str, Any]:
    return {"parameters": dict(net.named_parameters()), "buffers": dict(net.named_buffers())}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path / "run", "job")
    directory.write_config("name: job\n")
    return directory


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_model_loads_elsewhere(tmp_path: Path, run: RunDirectory, name: str) -> None:
    net = model()
    store = CheckpointStore(run.checkpoints, 2)
    store.save(1, {"parameters": {}, "buffers": {}})
    checkpoint = store.save(2, tree(net))
    for number, source in enumerate([run.path, checkpoint, tree(net)]):
        out = export(source, tmp_path / f"{number}-{name}")
        if out.suffix == ".pt":
            state = torch.load(out, weights_only=True)
        else:
            state = safetensors.torch.load_file(out)
        assert set(state) == set(net.state_dict())
        other = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
        other.load_state_dict(state)
        for key, value in net.state_dict().items():
            assert torch.equal(other.state_dict()[key], value), key


def test_shared_memory_and_views(tmp_path: Path) -> None:
    flat = torch.arange(6.0)
    parameters = {"a": flat[:4].reshape(2, 2).t(), "b": flat[2:]}
    out = export({"parameters": parameters}, tmp_path / "m.safetensors")
    found = safetensors.torch.load_file(out)
    assert found["a"].tolist() == [[0.0, 2.0], [1.0, 3.0]]
    assert found["b"].tolist() == [2.0, 3.0, 4.0, 5.0]


def test_errors(tmp_path: Path, run: RunDirectory) -> None:
    with pytest.raises(ExportError, match=r"\.pt or \.safetensors"):
        export({"parameters": {}}, tmp_path / "model.onnx")
    with pytest.raises(ExportError, match="no parameters"):
        export({}, tmp_path / "model.pt")
    with pytest.raises(ExportError, match="no checkpoint"):
        export(run.path, tmp_path / "model.pt")
    with pytest.raises(NotARun, match="no such directory"):
        export(tmp_path / "missing", tmp_path / "model.pt")
    CheckpointStore(run.checkpoints, 1).save(1, {}).write_bytes(b"")
    with pytest.warns(CheckpointWarning), pytest.raises(CheckpointError, match="none of the 1"):
        export(run.path, tmp_path / "model.pt")
    assert not (tmp_path / "model.pt").exists()


def test_dtype_that_safetensors_lacks(tmp_path: Path) -> None:
    bits = {"w": torch.zeros(2, dtype=torch.uint8).view(torch.bits8)}
    with pytest.raises(ExportError, match=r"export to \.pt"):
        export({"parameters": bits}, tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []
