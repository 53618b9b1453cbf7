"""What checkpoints cost: ResNet-18 saved every few steps against the same job that is not.

The machine's speed drifts, so runs of both kinds alternate and medians are compared; beside them
stand two figures without that noise: how long saving held the training up, and the processor time
of the thread that writes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import h5py
import numpy as np

from psopt.record import RunDirectory

JOB = """\
name: bench-checkpoints
model: {name: resnet18}
data: {path: cifar.h5}
scheme: {name: bsp}
optimizer: {name: SGD, lr: 0.001, momentum: 0.9}
train: {epochs: 1000, batch_size: BATCH}
stop: {steps: STEPS}
evaluate: {every_epochs: 1000}
checkpoint: {every_steps: EVERY}
"""
_ROWS = 512
_NEVER = "null"


@dataclass(frozen=True)
class Cost:
    """Medians over the pairs of runs, as shares of the training's wall time.

    Attributes:
        overhead: of the runs that save, beyond that of their neighbours that do not.
        held_up: in which the training waited for a copy, or for the save before.
        processor: that the writing thread took, of one processor.
        saves: of a run, beside the one at its end, which both kinds make.
        step_seconds: of a step of the runs that do not save.
    """

    overhead: float
    held_up: float
    processor: float
    saves: int
    step_seconds: float


def measure(pairs: int, steps: int, every: int, batch_size: int, ranks: int) -> Cost:
    """Run ``pairs`` pairs of runs.

    Args:
        pairs: of runs, alternating.
        steps: of a run.
        every: steps from save to save.
        batch_size: of a worker.
        ranks: with the coordinator.
    """
    found = []
    with tempfile.TemporaryDirectory(prefix="psopt-bench-") as folder:
        place = Path(folder)
        _write_images(place / "cifar.h5")
        for number in range(pairs):
            order = (str(every), _NEVER) if number % 2 else (_NEVER, str(every))
            runs = {}
            for interval in order:
                job = JOB.replace("STEPS", str(steps)).replace("BATCH", str(batch_size))
                (place / "job.yaml").write_text(job.replace("EVERY", interval))
                runs[interval] = _run(place, f"{number}-{interval}", ranks)
            found.append((runs[str(every)], runs[_NEVER]))
            saved, never = (run["seconds"] for run in found[-1])
            print(f"  saved {saved:.2f} s, never {never:.2f} s", flush=True)
    return Cost(
        overhead=median(a["seconds"] / b["seconds"] - 1 for a, b in found),
        held_up=median(_more(a, b, "checkpoint_seconds") for a, b in found),
        processor=median(_more(a, b, "checkpoint_cpu_seconds") for a, b in found),
        saves=(steps - 1) // every,
        step_seconds=median(b["seconds"] for _, b in found) / steps,
    )


def _more(saved: dict[str, Any], never: dict[str, Any], key: str) -> float:
    """What the saves in the middle took; the one at the end comes after the last step."""
    return float((saved[key] - never[key]) / saved["seconds"])


def _run(place: Path, name: str, ranks: int) -> dict[str, Any]:
    command = ["run", "job.yaml", "--out", name, "-n", str(ranks)]
    subprocess.run(
        [sys.executable, "-m", "psopt", *command], cwd=place, check=True, stdout=subprocess.DEVNULL
    )
    summary = RunDirectory.open(place / name).read_summary()
    assert summary is not None
    return summary


def _write_images(path: Path) -> None:
    """As CIFAR-10 is shaped, and without its content: only the time matters."""
    generator = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for split, rows in (("train", _ROWS), ("test", 16)):
            x = generator.integers(0, 256, (rows, 3, 32, 32), dtype=np.uint8)
            file.create_dataset(f"{split}/x", data=x)
            file.create_dataset(f"{split}/y", data=np.arange(rows, dtype=np.int64) % 10)
        file.attrs["classes"] = [str(number) for number in range(10)]
