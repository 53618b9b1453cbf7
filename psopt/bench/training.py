"""BSP with collective exchange against PyTorch DDP over gloo: samples a second, and the workers' computing share."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from psopt.record import RunDirectory, read_metrics, read_timeline

JOB = """\
name: bench-bsp
model: {name: lenet5}
data: {train_limit: 3968}
scheme: {name: bsp, exchange: collective}
optimizer: {name: SGD, lr: 0.02, momentum: 0.9}
train: {epochs: EPOCHS, batch_size: 64}
evaluate: {every_epochs: 1000}
device: {kind: cpu, threads: 1}
"""
WARM_UP = 8


@dataclass(frozen=True)
class Figures:
    """Medians over the runs.

    Attributes:
        computing: share of the wall time that workers spend in forward and backward passes.
        allowed: what that share would be if a barrier alone came between the same passes: two
            workers are never equally fast, and each round lasts as long as the slower one's pass.
        speed: samples a second over those of DDP.
    """

    computing: float
    allowed: float
    speed: float


def compare(runs: int, epochs: int, workers: int = 2) -> Figures:
    """Alternate psopt and DDP ``runs`` times."""
    with tempfile.TemporaryDirectory(prefix="psopt-bench-") as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(JOB.replace("EPOCHS", str(epochs)))
        ratios, computing, allowed = [], [], []
        for number in range(runs):
            ours, share, most = _psopt(path, Path(folder) / f"run{number}", workers)
            theirs = _ddp(path, workers)
            ratios.append(ours / theirs)
            computing.append(share)
            allowed.append(most)
            print(
                f"  psopt {ours:,.0f} samples/s, computing {share:.3f} of the time "
                f"(a barrier alone allows {most:.3f}); DDP {theirs:,.0f} samples/s",
                flush=True,
            )
    return Figures(median(computing), median(allowed), median(ratios))


def _psopt(path: Path, out: Path, workers: int) -> tuple[float, float, float]:
    """(samples a second after the warm-up, computing share, share that a barrier alone allows)."""
    command = ["run", str(path), "-n", str(workers + 1), "--out", str(out)]
    subprocess.run([sys.executable, "-m", "psopt", *command], check=True, capture_output=True)
    run = RunDirectory.open(out)
    steps = [row for row in read_metrics(run.metrics_path) if row["kind"] == "step"]
    first, last = steps[WARM_UP], steps[-1]
    speed = (last["samples"] - first["samples"]) / (last["seconds"] - first["seconds"])
    return speed, *_computing_share(run, workers)


def _computing_share(run: RunDirectory, workers: int) -> tuple[float, float]:
    """Share of the rounds' time, after the warm-up, in gradients; and what a barrier alone allows."""
    spans = [event for event in read_timeline(run.timeline_path) if event["ph"] == "X"]
    passes = [
        [s for s in spans if s["tid"] == rank and s["name"] == "compute"][WARM_UP:]
        for rank in range(1, workers + 1)
    ]
    busy = [sum(span["dur"] for span in mine) for mine in passes]
    wall = [mine[-1]["ts"] + mine[-1]["dur"] - mine[0]["ts"] for mine in passes]
    slowest = sum(max(span["dur"] for span in one) for one in zip(*passes, strict=True))
    shares = [b / w for b, w in zip(busy, wall, strict=True)]
    return sum(shares) / workers, sum(busy) / workers / slowest


def _ddp(path: Path, workers: int) -> float:
    """Samples a second after the warm-up."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "psopt.bench.ddp_rank",
                str(path),
                str(rank),
                str(workers),
                port,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(workers)
    ]
    output = [rank.communicate()[0] for rank in ranks]
    figures = json.loads(output[0])
    return float(figures["samples"] / figures["seconds"])
