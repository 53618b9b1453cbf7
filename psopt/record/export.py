"""A trained model out of a checkpoint, in the formats that other tools read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from psopt.record.checkpoint import CheckpointStore, warn_of_checkpoint
from psopt.record.directory import RunDirectory
from psopt.record.files import replacing

SUFFIXES = (".pt", ".safetensors")


class ExportError(ValueError):
    """The model cannot be exported; the text says why and what to do."""


def export(
    source: Path | Mapping[str, Any], out: Path, warn: Callable[[str], None] = warn_of_checkpoint
) -> Path:
    """Write parameters and buffers, by name, to one file.

    Args:
        source: a run directory (its newest whole checkpoint counts), a checkpoint file, or the tree
            of a checkpoint with the dicts "parameters" and "buffers" of tensors.
        out: `.pt` for `torch.load` and `load_state_dict`, or `.safetensors`.
        warn: is told of checkpoints that are damaged, and skipped.

    Returns:
        `out`.

    Raises:
        ExportError: another suffix, no checkpoint, a place that cannot be written, or a dtype that safetensors lacks.
        NotARun: `source` is a directory, but not of a run.
        CheckpointError: the checkpoint is damaged.
    """
    out = Path(out)
    if out.suffix not in SUFFIXES:
        raise ExportError(f"{out}: unknown format {out.suffix!r}; name it .pt or .safetensors")
    tensors = state_dict(_tree(source, warn) if isinstance(source, str | Path) else source)
    try:
        with replacing(out) as handle:
            if out.suffix == ".pt":
                torch.save(tensors, handle)
            else:
                handle.write(_safetensors(tensors))
    except OSError as error:
        raise ExportError(f"{out}: cannot be written: {error.strerror or error}") from error
    return out


def state_dict(tree: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """What `load_state_dict` takes: parameters, then buffers, on the CPU, each with its own memory.

    Tied parameters are saved once; their further names ("aliases") get copies.

    Raises:
        ExportError: the tree has no "parameters", or they, the buffers or the aliases are others than
            a training run writes.
    """
    if "parameters" not in tree:
        raise ExportError("the checkpoint holds no parameters; a training run has not written it")
    try:
        named = {**tree["parameters"], **tree.get("buffers", {})}
        named |= {alias: named[name] for alias, name in tree.get("aliases", {}).items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ExportError("the checkpoint's parameters are not tensors by their names") from error
    for name, tensor in named.items():
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(f"the checkpoint's parameter {name!r} is no tensor")
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}


def _tree(source: Path | str, warn: Callable[[str], None]) -> Mapping[str, Any]:
    path = Path(source)
    if path.is_file():
        return CheckpointStore(path.parent, keep=1).load(path)
    directory = RunDirectory.open(path)
    store = CheckpointStore(directory.checkpoints, 1, warn, directory.identity())
    latest = store.load_latest()
    if latest is None:
        raise ExportError(
            f"{path}: the run has no checkpoint; set checkpoint.every_steps, or let it end"
        )
    return latest[1]


def _safetensors(tensors: dict[str, torch.Tensor]) -> bytes:
    try:
        return safetensors.torch.save(tensors, metadata={"format": "pt"})
    except (KeyError, ValueError, TypeError) as error:
        raise ExportError(f"safetensors cannot hold this model ({error}); export to .pt") from error
