"""All benchmarks in one call: each figure is a share, or a ratio of alternating runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from psopt.bench.training import compare, ranks
from psopt.data import BatchPlan, open_dataset

RESNET_101 = 42_512_970  # parameters of ResNet-101 for ten classes


@dataclass(frozen=True)
class Line:
    """One line of the result.

    Attributes:
        what: is measured.
        value: measured.
        bound: text of the aim.
        met: whether the aim is met.
    """

    what: str
    value: str
    bound: str
    met: bool


def run(jobs: Path, runs: int, epochs: int) -> list[Line]:
    """Measure everything.

    Args:
        jobs: folder of the bare MPI programs, the yardsticks.
        runs: alternating runs of each pair.
        epochs: of each training run.
    """
    print(f"training: {runs} alternating runs of psopt, a bare program and DDP", flush=True)
    training = compare(jobs / "plain_bsp.py", runs, epochs)
    print(f"exchange: {runs} alternating runs of psopt and bare MPI", flush=True)
    ratio, idle = exchange(jobs / "plain_mpi.py", runs)
    pipeline = data_pipeline()
    return [
        Line(
            "BSP collective, 2 workers: share of wall time in forward/backward",
            f"{training.computing:.3f}",
            ">= 0.90",
            training.computing >= 0.90,
        ),
        Line(
            "... if a barrier alone came between the same passes",
            f"{training.allowed:.3f}",
            "",
            True,
        ),
        Line(
            "... in a bare program that spins in Sendrecv between the same passes",
            f"{training.by_hand:.3f}",
            "",
            True,
        ),
        Line(
            "BSP collective against DDP over gloo: samples/s",
            f"{training.speed:.2f}x",
            ">= 1.10x",
            training.speed >= 1.10,
        ),
        Line(
            "push + pull of 42.5 M float32 against a bare Send + Recv",
            f"{ratio:.2f}x",
            "<= 1.50x",
            ratio <= 1.5,
        ),
        Line("CPU share of an idle coordinator", f"{100 * idle:.1f} %", "< 5 %", idle < 0.05),
        Line(
            "data pipeline, MNIST samples/s a worker",
            f"{pipeline:,.0f}",
            ">= 100,000",
            pipeline >= 1e5,
        ),
    ]


def exchange(yardstick: Path, runs: int, elements: int = RESNET_101) -> tuple[float, float]:
    """(median ratio of push + pull to a bare Send + Recv, median CPU share of an idle coordinator)."""
    sizes = [str(elements), "12"]
    ratios, idle = [], []
    for _ in range(runs):
        ours = ranks(2, ["-m", "psopt.bench.exchange", *sizes])
        bare = ranks(2, [str(yardstick), *sizes])
        ratios.append(ours["push_pull"] / bare["push_pull"])
        idle.append(ours["idle"])
        print(
            f"  psopt {1e3 * ours['push_pull']:.1f} ms, bare {1e3 * bare['push_pull']:.1f} ms",
            flush=True,
        )
    return median(ratios), median(idle)


def data_pipeline(batch_size: int = 64, rounds: int = 20) -> float:
    """Samples a second from ticket to normalised batch, on one thread; median over epochs."""
    torch.set_num_threads(1)
    train = open_dataset("sample", cache_bytes=1 << 30).train
    rates = []
    for epoch in range(rounds):
        start = time.perf_counter()
        plan = BatchPlan(1, epoch, len(train), batch_size)
        for batch in range(len(plan)):
            train.batch(plan.rows(batch))
        rates.append(len(train) / (time.perf_counter() - start))
    return median(rates)
