"""A job on the virtual cluster in this process, without a run directory."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt import job
from psopt.config import JobConfig
from psopt.crew.cluster import virtual_crew
from psopt.record import CheckpointStore, MetricsWriter, Timeline, read_metrics
from psopt.roles.coordinator import Coordinator
from psopt.roles.display import Display
from psopt.roles.journal import Journal
from psopt.roles.server import ParameterServer
from psopt.schemes.base import Scheme


@dataclass(frozen=True)
class Ended:
    """A run that has ended.

    Attributes:
        coordinator: after its run.
        status, reason: as in a run's summary.
        rows: of its metrics.
    """

    coordinator: Coordinator
    status: str
    reason: str
    rows: list[dict[str, Any]]


def run(config: JobConfig[Scheme], display: Display) -> Ended:
    """Run ``config`` on its virtual cluster, with one CPU thread where it does not say how many.

    Threads show in the last bits, and a study is one of several processes that share the cores.
    """
    job.set_threads(config.device.threads, 1)
    parts, replica = job.assemble(config), job.assemble(config).replica()
    with tempfile.TemporaryDirectory(prefix="psopt-study-") as folder:
        path = Path(folder)
        metrics = path / "metrics.jsonl"
        journal = Journal(
            MetricsWriter(metrics),
            Timeline(path / "timeline.json", config.log.timeline_events),
            display,
            config.log.every_steps,
        )
        coordinator = Coordinator(
            config,
            virtual_crew(config, replica, journal.observe, journal.warn),
            ParameterServer(parts.model, parts.optimizer(parts.model)),
            parts.tickets(),
            test_samples=len(parts.data.test),
            journal=journal,
            store=CheckpointStore(path / "checkpoints", 1),
        )
        status, reason = coordinator.run()
        journal.close()
        return Ended(coordinator, status, reason, read_metrics(metrics))
