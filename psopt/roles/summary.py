"""summary.json: what came of a run, in one flat page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psopt.roles.coordinator import Coordinator

_KINDS = ("compute", "wait", "communication")


def summarise(
    coordinator: Coordinator,
    *,
    crew: str,
    status: str,
    reason: str,
    wall_seconds: float,
    attempts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The summary of a run that has ended.

    Args:
        coordinator: after its run.
        crew: ``mpi`` or ``simulated``.
        status: ``completed``, ``diverged`` or ``failed``.
        reason: why it ended.
        wall_seconds: of this attempt, from start to end.
        attempts: what is on record of the starts of this run, this one included. Workers that were
            lost in one have the number that they had in it.
    """
    config, progress = coordinator.config, coordinator.progress
    server, tickets, journal = coordinator.server, coordinator.tickets, coordinator.journal
    restarts, lost = _losses(attempts, progress.lost)
    staleness = journal.staleness
    applied = sum(staleness.values())
    optimizer = config.optimizer if config.scheme.needs_optimizer else None
    return {
        "name": config.name,
        "scheme": config.scheme.name,
        "workers": len(coordinator.crew.workers),
        "crew": crew,
        "status": status,
        "reason": reason,
        "steps": progress.step,
        "samples": tickets.samples,
        "epochs": tickets.epoch,
        "seconds": progress.seconds,
        "wall_seconds": wall_seconds,
        "evaluation_seconds": progress.evaluation_seconds,
        "checkpoint_seconds": coordinator.saver.seconds,
        "checkpoint_cpu_seconds": coordinator.saver.writer.cpu_seconds,
        "test_accuracy": progress.test_accuracy,
        "test_loss": progress.test_loss,
        "best_test_accuracy": progress.best_test_accuracy,
        "objective": progress.objective,
        "seconds_to_target": progress.seconds_to_target,
        "mean_staleness": sum(s * n for s, n in staleness.items()) / applied if applied else 0.0,
        "max_staleness": max(staleness, default=0),
        "staleness_histogram": {str(s): n for s, n in sorted(staleness.items())},
        "degraded": bool(lost),
        "lost_workers": lost,
        "refused_updates": progress.refused,
        "refused_by": coordinator.context.offences.by,
        "late_replies": coordinator.crew.late,
        "refused_samples": tickets.refused_samples,
        "parameters": server.model.parameters.numel(),
        "parameters_sha256": server.sha256(),
        "optimizer": optimizer.name if optimizer else None,
        "lr": optimizer.lr if optimizer else None,
        "batch_size": config.train.batch_size,
        "seed": config.seed,
        "worker_seconds": [
            {"worker": worker, **{kind: float(totals.get(kind, 0.0)) for kind in _KINDS}}
            for worker, totals in sorted(journal.worker_seconds.items())
        ],
        "attempts": len(attempts),
        "restarts": restarts,
    }


def _losses(attempts: Sequence[Mapping[str, Any]], lost: Sequence[int]) -> tuple[int, list[int]]:
    """How often the run was started again after a loss; and all workers lost, once where in several attempts."""
    restarts = [attempt["lost_ranks"] for attempt in attempts if "lost_ranks" in attempt]
    earlier = [rank - 1 for ranks in restarts for rank in ranks if rank > 0]
    return len(restarts), list(dict.fromkeys([*earlier, *lost]))


def outcome(summary: Mapping[str, Any]) -> str:
    """The same in a line."""
    objective, accuracy = summary["objective"], summary["test_accuracy"]
    figures = "" if objective is None else f", objective {objective:.10g}"
    figures += "" if accuracy is None else f", test accuracy {100 * accuracy:.2f} %"
    lost = f", degraded: workers {summary['lost_workers']} lost" if summary["degraded"] else ""
    return (
        f"{summary['status']}{lost} ({summary['reason']}): {summary['steps']} steps, "
        f"{summary['seconds']:.1f} s{figures}"
    )
