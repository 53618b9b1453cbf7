"""Run directories as a run of this kind would leave them, from a small simulation of its ranks."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psopt.record import MetricsWriter, RunDirectory, Timeline

TRAIN = 60_000
BATCH = 64
WIRE = 2e-3


@dataclass
class Shape:
    """What to simulate: `synchronous` or not, how fast each worker is, how well it learns."""

    name: str
    synchronous: bool
    workers: int = 4
    steps: int = 600
    slowdown: dict[int, float] = field(default_factory=dict)
    floor: float = 0.06
    rate: float = 1 / 150
    diverges: bool = False
    scheme: str = ""
    host: str = ""
    mean: float = 0.05
    seed: int = 1
    target: float | None = 0.97


class Recorder:
    def __init__(self, run: RunDirectory, shape: Shape) -> None:
        self.shape = shape
        self.random = random.Random(shape.seed)
        self.metrics = MetricsWriter(run.metrics_path)
        self.timeline = Timeline(run.timeline_path, 100_000)
        self.timeline.name(0, "coordinator")
        for worker in range(shape.workers):
            self.timeline.name(worker + 1, f"worker {worker}{shape.host}")
        self.seconds = [
            {"compute": 0.0, "wait": 0.0, "communication": 0.0} for _ in range(shape.workers)
        ]
        self.staleness: Counter[int] = Counter()
        self.step = self.samples = 0
        self.best, self.to_target = 0.0, None
        self.test: tuple[float, float] = (math.nan, math.nan)

    def duration(self, worker: int) -> float:
        factor = self.shape.slowdown.get(worker, 1.0)
        return self.shape.mean * factor * self.random.lognormvariate(0.0, 0.3)

    def work(self, worker: int, kind: str, start: float, end: float) -> None:
        self.timeline.add(worker + 1, kind, start, end)
        key = kind if kind in ("compute", "wait") else "communication"
        self.seconds[worker][key] += end - start

    def update(self, now: float, samples: int, stale: int, worker: int | None) -> None:
        self.step += 1
        self.samples += samples
        self.staleness[stale] += 1
        row = self.place(now)
        loss = self.loss() * self.random.lognormvariate(0, 0.2)
        self.metrics.write(
            {"kind": "step", **row, "loss": loss, "accuracy": 0.5, "staleness": stale}
            | {"weight": 1.0, "worker": worker, "lr": 0.05}
        )

    def loss(self) -> float:
        progress = self.samples / BATCH * self.shape.rate
        if self.shape.diverges:
            return min(2.3 * math.exp(progress), 1e30)
        return self.shape.floor + 2.25 * math.exp(-progress) + 0.25 / (1 + progress)

    def place(self, now: float) -> dict[str, Any]:
        return {
            "step": self.step,
            "version": self.step,
            "epoch": self.samples / TRAIN,
            "samples": self.samples,
            "seconds": now,
        }

    def evaluate(self, now: float) -> None:
        self.timeline.add(0, "evaluate", now, now + self.shape.mean)
        loss = self.loss() * self.random.lognormvariate(0, 0.03)
        accuracy = max(0.1, min(0.995, 1.0 - 0.33 * loss)) if loss < 3 else 0.098
        self.test = (loss, accuracy)
        self.best = max(self.best, accuracy)
        target = self.shape.target
        if self.to_target is None and target is not None and accuracy >= target:
            self.to_target = now
        row = {"test_loss": loss if loss < 1e29 else None, "test_accuracy": accuracy}
        self.metrics.write({"kind": "evaluation", **self.place(now), **row})

    def close(self) -> None:
        self.metrics.close()
        self.timeline.close()


def synchronous(recorder: Recorder) -> float:
    shape, now = recorder.shape, 0.0
    recorder.evaluate(now)
    for step in range(1, shape.steps + 1):
        ends = [now + recorder.duration(worker) for worker in range(shape.workers)]
        slowest = max(ends)
        for worker, end in enumerate(ends):
            recorder.work(worker, "compute", now, end)
            recorder.work(worker, "send", end, end + WIRE)
            recorder.work(worker, "wait", end + WIRE, slowest + 2 * WIRE)
            recorder.work(worker, "receive", slowest + 2 * WIRE, slowest + 3 * WIRE)
        recorder.timeline.add(0, "wait", now, slowest)
        recorder.timeline.add(0, "receive", slowest, slowest + WIRE)
        recorder.timeline.add(0, "update", slowest + WIRE, slowest + 2 * WIRE)
        recorder.timeline.add(0, "send", slowest + 2 * WIRE, slowest + 3 * WIRE)
        now = slowest + 3 * WIRE
        recorder.update(now, BATCH * shape.workers, 0, None)
        if step % (shape.steps // 12) == 0:
            recorder.evaluate(now)
    return now


def asynchronous(recorder: Recorder) -> float:
    shape, now, free = recorder.shape, 0.0, 0.0
    recorder.evaluate(now)
    ready: list[tuple[float, int, int]] = []
    for worker in range(shape.workers):
        end = recorder.duration(worker)
        recorder.work(worker, "compute", 0.0, end)
        heapq.heappush(ready, (end, worker, 0))
    every = shape.steps * shape.workers // 12
    for step in range(1, shape.steps * shape.workers + 1):
        arrived, worker, computed_at = heapq.heappop(ready)
        recorder.work(worker, "send", arrived, arrived + WIRE)
        start = max(free, arrived + WIRE)
        if start > free:
            recorder.timeline.add(0, "wait", free, start)
        recorder.timeline.add(0, "update", start, start + WIRE)
        free = now = start + WIRE
        recorder.work(worker, "wait", arrived + WIRE, free)
        recorder.work(worker, "receive", free, free + WIRE)
        recorder.update(now, BATCH, recorder.step - computed_at, worker)
        end = free + WIRE + recorder.duration(worker)
        recorder.work(worker, "compute", free + WIRE, end)
        heapq.heappush(ready, (end, worker, recorder.step))
        if step % every == 0:
            recorder.evaluate(now)
    return now


def make_run(path: Path, shape: Shape, *, summary: bool = True) -> Path:
    """Simulate a run of this shape and leave its directory at `path`."""
    run = RunDirectory.create(path, shape.name)
    scheme = shape.scheme or ("bsp" if shape.synchronous else "asp")
    stop = "" if shape.target is None else f"stop:\n  test_accuracy: {shape.target}\n"
    run.write_config(f"name: {shape.name}\nscheme:\n  name: {scheme}\n{stop}")
    recorder = Recorder(run, shape)
    seconds = synchronous(recorder) if shape.synchronous else asynchronous(recorder)
    recorder.close()
    counts = recorder.staleness
    total = sum(counts.values())
    if summary:
        run.write_summary(
            {
                "name": shape.name,
                "scheme": scheme,
                "workers": shape.workers,
                "crew": "simulated",
                "status": "diverged" if shape.diverges else "completed",
                "reason": "loss is not finite" if shape.diverges else "epochs",
                "steps": recorder.step,
                "samples": recorder.samples,
                "epochs": recorder.samples / TRAIN,
                "seconds": seconds,
                "test_loss": recorder.test[0],
                "test_accuracy": recorder.test[1],
                "best_test_accuracy": recorder.best,
                "seconds_to_target": recorder.to_target,
                "mean_staleness": sum(k * n for k, n in counts.items()) / total,
                "max_staleness": max(counts),
                "staleness_histogram": {str(key): n for key, n in sorted(counts.items())},
                "refused_updates": 3 if shape.diverges else 0,
                "worker_seconds": [
                    {"worker": worker, **seconds} for worker, seconds in enumerate(recorder.seconds)
                ],
            }
        )
    return path


def make_batch_run(
    path: Path,
    objectives: Sequence[float | None],
    *,
    start: float | None = None,
    slices: int = 3,
    config: str = "model: {name: softmax}\nloss: {name: cross_entropy}\n",
    passes: float = 1.0,
    seconds: float = 0.5,
) -> Path:
    """A run of a batch method on two workers, which do `slices` slices each a round.

    Args:
        path: the directory, whose name is the job's.
        objectives: after each round; None is written as null, nothing else is.
        start: the objective of a start row; None for no such row.
        slices: that a worker computes one after another.
        config: model, data and loss sections.
        passes: gradient passes a round.
        seconds: of a round, of which the last fifth is spent waiting.
    """
    run = RunDirectory.create(path, path.name)
    run.write_config(f"name: {path.name}\nscheme: {{name: dane}}\n{config}")
    with MetricsWriter(run.metrics_path) as metrics:
        if start is not None:
            metrics.write(
                {"kind": "start", "step": 0, "epoch": 0.0, "seconds": 0.0, "objective": start}
            )
        for step, objective in enumerate(objectives, 1):
            place = {"step": step, "epoch": passes * step, "seconds": seconds * step}
            metrics.write({"kind": "step", **place, "loss": objective, "objective": objective})
    with Timeline(run.timeline_path, 100_000) as timeline:
        for step in range(len(objectives)):
            begin, slice_seconds = seconds * step, 0.8 * seconds / slices
            for rank in (1, 2):
                for k in range(slices):
                    at = begin + k * slice_seconds
                    timeline.add(rank, "compute", at, at + slice_seconds)
                timeline.add(rank, "wait", begin + 0.8 * seconds, begin + seconds)
    return path
