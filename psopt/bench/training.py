"""BSP with collective exchange against PyTorch DDP over gloo and against BSP by hand.

Samples a second over DDP's; and the workers' computing share beside that of a bare MPI program.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from psopt.launch.flavour import detect_flavour, find_mpirun, mpirun_argv
from psopt.record import RunDirectory, read_metrics, read_timeline

JOB = """\
name: bench-bsp
model: {name: lenet5}
data: {train_limit: 3968}
scheme: {name: bsp, exchange: collective}
optimizer: {name: SGD, lr: 0.02, momentum: 0.9, fused: true}
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
        by_hand: that share in a bare program that spins in MPI's Sendrecv between the same passes.
        speed: samples a second over those of DDP.
    """

    computing: float
    allowed: float
    by_hand: float
    speed: float


def compare(by_hand: Path, runs: int, epochs: int, workers: int = 2) -> Figures:
    """Alternate psopt, the bare program ``by_hand`` and DDP ``runs`` times."""
    with tempfile.TemporaryDirectory(prefix="psopt-bench-") as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(JOB.replace("EPOCHS", str(epochs)))
        ratios, computing, allowed, bare = [], [], [], []
        for number in range(runs):
            ours, share, most = _psopt(path, Path(folder) / f"run{number}", workers)
            theirs = _ddp(path, workers)
            ratios.append(ours / theirs)
            computing.append(share)
            allowed.append(most)
            bare.append(ranks(workers, [str(by_hand), str(path)])["computing"])
            print(
                f"  psopt {ours:,.0f} samples/s, computing {share:.3f} of the time "
                f"(a barrier alone allows {most:.3f}, by hand {bare[-1]:.3f}); DDP {theirs:,.0f} samples/s",
                flush=True,
            )
    return Figures(median(computing), median(allowed), median(bare), median(ratios))


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


def ranks(number: int, program: list[str]) -> dict[str, float]:
    """Figures that a program on ``number`` ranks prints last."""
    mpirun = find_mpirun()
    argv = [*mpirun_argv(mpirun, detect_flavour(mpirun), number), sys.executable, *program]
    result = subprocess.run(
        argv, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    figures: dict[str, float] = json.loads(result.stdout.strip().splitlines()[-1])
    return figures


def _ddp(path: Path, workers: int) -> float:
    """Samples a second after the warm-up."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    processes = [
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
    output = [rank.communicate()[0] for rank in processes]
    figures = json.loads(output[0])
    return float(figures["samples"] / figures["seconds"])
