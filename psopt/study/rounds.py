"""DANE beside BSP on a network: time and gradient passes to a test accuracy, against workers.

Both run on the virtual cluster with the same computing times and network. A gradient pass is one
gradient of every training sample, wherever it was computed: DANE's local passes count like those of
its global gradients. Evaluation of the test set costs neither.
BSP's learning rate grows with the workers, whose batches make one round (Goyal et al., 2017); DANE's
settings are the same for all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt import job
from psopt.record import MetricsWriter, read_metrics
from psopt.report.style import BLUE, VERMILION, figure, save
from psopt.roles.display import Several
from psopt.study.trial import simulate

SCHEMES: dict[str, dict[str, Any]] = {
    "dane": {
        "scheme": {
            "name": "dane",
            "safeguard": True,
            "local": {"solver": "sgd", "lr": 0.1, "passes": 2},
        },
        "evaluate": {"every_steps": 1},
    },
    "bsp": {
        "scheme": {"name": "bsp"},
        "optimizer": {"name": "SGD", "lr": 0.02, "momentum": 0.9},  # lr: a worker
        "evaluate": {"every_epochs": 1},
    },
}


@dataclass(frozen=True, order=True)
class Course:
    """What came of one run.

    Attributes:
        scheme: its name.
        workers: how many, and shards.
        seconds: virtual, until the target was first seen; None when it never was.
        passes: gradient passes until then.
        accuracy: the last one.
    """

    scheme: str
    workers: int
    seconds: float | None
    passes: float | None
    accuracy: float


def measure(
    data: str, out: Path, workers: list[int], target: float, passes: int, rows: int | None = None
) -> list[Course]:
    """All runs; those that ``out`` holds already are not made again.

    Args:
        data: HDF5 file, or ``sample``.
        out: file of JSON lines; it grows.
        workers: counts of workers.
        target: test accuracy.
        passes: a run ends after so many.
        rows: training samples, the first ones; None for all.
    """
    done = (
        {(row["scheme"], row["workers"]): row for row in read_metrics(out)} if out.exists() else {}
    )
    with MetricsWriter(out) as writer:
        for count in workers:
            for scheme in SCHEMES:
                if (scheme, count) not in done:
                    course = _run(data, scheme, count, target, passes, rows)
                    done[scheme, count] = vars(course)
                    writer.write(vars(course))
                    writer.flush()
    return [Course(**row) for row in done.values()]


def _run(
    data: str, scheme: str, workers: int, target: float, passes: int, rows: int | None
) -> Course:
    section = {
        "name": f"{scheme}-{workers}",
        "model": {"name": "lenet5"},
        "data": {"path": data, "train_limit": rows},
        "train": {"epochs": passes, "batch_size": 64},
        "stop": {"test_accuracy": target},
        "log": {"every_steps": 1 << 30, "timeline_events": 0},
        "cluster": {"workers": workers},
        "device": {"threads": 1},
        **SCHEMES[scheme],
    }
    if scheme == "bsp":
        section["optimizer"] = {**section["optimizer"], "lr": 0.02 * workers}
    coordinator = simulate(job.Job.model_validate_json(json.dumps(section)), Several([]))
    progress = coordinator.progress
    reached = progress.seconds_to_target is not None
    return Course(
        scheme,
        workers,
        progress.seconds_to_target,
        coordinator.tickets.epoch if reached else None,
        progress.test_accuracy or 0.0,
    )


def table(courses: list[Course]) -> str:
    """Markdown."""
    lines = ["| workers | scheme | seconds to the target | gradient passes | last accuracy |"]
    lines.append("|---|---|---|---|---|")
    for c in sorted(courses, key=lambda c: (c.workers, c.scheme)):
        seconds = "-" if c.seconds is None else f"{c.seconds:.1f}"
        spent = "-" if c.passes is None else f"{c.passes:.1f}"
        lines.append(
            f"| {c.workers} | {c.scheme} | {seconds} | {spent} | {100 * c.accuracy:.2f} % |"
        )
    return "\n".join(lines) + "\n"


def plot(courses: list[Course], path: Path) -> None:
    """Time and passes against workers, logarithmic axes."""
    with figure(2.8) as page:
        for axes, key, label in zip(
            page.subplots(1, 2),
            ("seconds", "passes"),
            ("virtual seconds to the target", "gradient passes to the target"),
            strict=True,
        ):
            for scheme, colour, marker in (("dane", BLUE, "o"), ("bsp", VERMILION, "s")):
                found = sorted(c for c in courses if c.scheme == scheme and c.seconds is not None)
                values = [getattr(c, key) for c in found]
                axes.plot(
                    [c.workers for c in found], values, marker=marker, color=colour, label=scheme
                )
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xlabel("workers")
            axes.set_ylabel(label)
            axes.legend()
        save(page, path.with_suffix(""), (path.suffix.removeprefix("."),))
