"""Where a run stands."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Progress:
    """Where the run stands. Saved with every checkpoint.

    Attributes:
        step: updates made, refused ones not counted.
        refused: updates refused.
        seconds: training clock, evaluation excluded.
        evaluation_seconds: time spent evaluating.
        test_loss, test_accuracy: of the last evaluation, at ``evaluated_at`` steps.
        best_test_accuracy: over all evaluations.
        seconds_to_target: training clock when a target of ``stop`` (test_accuracy, test_loss or
            objective) was first reached; ``target`` are those.
        objective: after the last update; None where the scheme does not measure it.
        lost: workers that attempts have gone on without; those whose loss ended an attempt are on
            record in ``attempts.jsonl``.
    """

    step: int = 0
    refused: int = 0
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    test_loss: float | None = None
    test_accuracy: float | None = None
    best_test_accuracy: float | None = None
    seconds_to_target: float | None = None
    evaluated_at: int = -1
    objective: float | None = None
    target: list[float | None] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
