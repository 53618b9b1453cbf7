"""DANE beside BSP on a network: time and gradient passes to a test accuracy, against workers.

Both run on the virtual cluster with the same computing times and network. A gradient pass is one
gradient of every training sample, wherever it was computed: DANE's local passes count like those of
its global gradients. Evaluation of the test set costs neither.
The batches of all workers make one round of BSP: its learning rate grows with their number (Goyal et
al., 2017) or with its square root, whichever arrives first. DANE's settings are the same for all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from psopt import job
from psopt.config import JobConfig
from psopt.data.layout import resolve
from psopt.report.style import figure, line_style, logarithmic, save
from psopt.roles.display import Several
from psopt.schemes.base import Scheme
from psopt.study.book import Book
from psopt.study.virtual import run

SCHEMES = ("dane", "bsp")


@dataclass(frozen=True)
class Setting:
    """What all runs have in common.

    Attributes:
        data: HDF5 file, or ``sample``.
        rows: training samples, the first ones; None for all.
        target: test accuracy whose time is measured.
        passes: a run ends after so many.
    """

    data: str
    rows: int | None = None
    target: float = 0.98
    passes: int = 60


@dataclass(frozen=True, order=True)
class Trial:
    """One run, with a shard or slot a worker.

    Attributes:
        workers: how many.
        scheme: ``dane`` or ``bsp``.
        rate: learning rate, of DANE's local solver or of BSP's SGD.
    """

    workers: int
    scheme: str
    rate: float


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        seconds: virtual, until the target was first seen; None when it never was.
        passes: gradient passes until then.
        accuracy: the last one.
    """

    seconds: float | None
    passes: float | None
    accuracy: float


Results = Mapping[Trial, Outcome]


def measure(setting: Setting, path: Path, workers: Sequence[int]) -> Results:
    """All runs; those that ``path`` holds already are not made again.

    Raises:
        OtherStudy: it holds those of another setting.
    """
    book = Book(path, setting, Trial, Outcome)
    for trial in [Trial(n, s, rate) for n in workers for s in SCHEMES for rate in _rates(s, n)]:
        if trial not in book.results:
            book.add(trial, _outcome(setting, trial))
    book.close()
    return book.results


def best(results: Results) -> Results:
    """For each scheme and number of workers the run that arrived first."""

    def arrival(trial: Trial) -> float:
        seconds = results[trial].seconds
        return math.inf if seconds is None else seconds

    found: dict[tuple[int, str], Trial] = {}
    for trial in sorted(results, key=arrival):
        found.setdefault((trial.workers, trial.scheme), trial)
    return {trial: results[trial] for trial in sorted(found.values())}


def _rates(scheme: str, workers: int) -> list[float]:
    if scheme == "dane":
        return [0.1]
    return sorted({0.02 * workers, round(0.02 * math.sqrt(workers), 4)})


def _outcome(setting: Setting, trial: Trial) -> Outcome:
    coordinator = run(_job(setting, trial), Several([])).coordinator
    progress = coordinator.progress
    reached = progress.seconds_to_target is not None
    passes = coordinator.tickets.epoch if reached else None
    return Outcome(progress.seconds_to_target, passes, progress.test_accuracy or 0.0)


def _job(setting: Setting, trial: Trial) -> JobConfig[Scheme]:
    sections = {
        "name": f"{trial.scheme}-{trial.workers}",
        "model": {"name": "lenet5"},
        "data": {"path": str(resolve(setting.data)), "train_limit": setting.rows},
        "train": {"epochs": setting.passes, "batch_size": 64},
        "stop": {"test_accuracy": setting.target},
        "log": {"every_steps": 1 << 30, "timeline_events": 0},
        "cluster": {"workers": trial.workers},
        "device": {"threads": 1},
    }
    if trial.scheme == "dane":
        local = {"solver": "sgd", "lr": trial.rate, "passes": 2}
        sections["scheme"] = {"name": "dane", "safeguard": True, "local": local}
        sections["evaluate"] = {"every_steps": 1}
    else:
        sections["scheme"] = {"name": "bsp"}
        sections["optimizer"] = {"name": "SGD", "lr": trial.rate, "momentum": 0.9}
        sections["evaluate"] = {"every_epochs": 1}
    config: JobConfig[Scheme] = job.Job.model_validate_json(json.dumps(sections))
    return config


def table(results: Results) -> str:
    """Markdown: all runs."""
    lines = [
        "| workers | scheme | learning rate | seconds to the target | gradient passes | accuracy |"
    ]
    lines.append("|---:|---|---:|---:|---:|---:|")
    for trial, outcome in sorted(results.items()):
        seconds = "-" if outcome.seconds is None else f"{outcome.seconds:.1f}"
        passes = "-" if outcome.passes is None else f"{outcome.passes:.1f}"
        accuracy = f"{100 * outcome.accuracy:.2f} %"
        who = f"{trial.workers} | {trial.scheme} | {trial.rate:g}"
        lines.append(f"| {who} | {seconds} | {passes} | {accuracy} |")
    return "\n".join(lines) + "\n"


def plot(results: Results, stem: Path) -> list[Path]:
    """Time and passes of the best runs against workers; a run that did not arrive is left out."""
    shown = {t: o for t, o in best(results).items() if o.seconds is not None}
    workers = sorted({trial.workers for trial in results})
    with figure(2.8) as page:
        for axes, key, label in zip(
            page.subplots(1, 2),
            ("seconds", "passes"),
            ("virtual seconds to the target", "gradient passes to the target"),
            strict=True,
        ):
            values = [getattr(outcome, key) for outcome in shown.values()]
            logarithmic([axes], min(values), max(values))
            axes.set_xscale("log", base=2)
            for index, scheme in enumerate(SCHEMES):
                found = {t.workers: getattr(o, key) for t, o in shown.items() if t.scheme == scheme}
                style = line_style(index, len(found))
                axes.plot([*found], [*found.values()], label=scheme, **style)
            axes.set_xticks(workers, [str(count) for count in workers])
            axes.set_xlabel("workers")
            axes.set_ylabel(label)
            axes.legend()
        return save(page, stem, ("png",))
