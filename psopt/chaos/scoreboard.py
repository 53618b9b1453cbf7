"""Many schemes under the same faults on real ranks: a table of what became of the runs.

Each scheme is tried twice: a worker is killed at a drawn moment, and a worker dies while it sends a reply
of 16 MB, that of a network large enough.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from psopt import job
from psopt.chaos.real import Outcome, Runs, right, stragglers_of
from psopt.schemes.asynchronous import Asynchronous

_LARGE = "model={name: mlp, kwargs: {hidden: [2100, 1200]}}"  # 4.2 million parameters, 16 MB
_RANKS, _PATIENCE = 4, 200.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a scheme is tried with.

    Attributes:
        config: a job's file.
        epochs: of LeNet-5, long enough for a kill in the middle.
        epochs_large: of the network with the large reply.
    """

    config: Path
    epochs: int
    epochs_large: int


@dataclass(frozen=True, slots=True)
class Row:
    """What became of the runs of a scheme with one kind of fault.

    Attributes:
        scheme: its name.
        fault: `kill` or `message`.
        outcomes: of the runs, each with what is wrong with it; empty: nothing.
        calm: the run without faults.
    """

    scheme: str
    fault: str
    outcomes: tuple[tuple[Outcome, str], ...]
    calm: Outcome

    @property
    def right(self) -> int:
        """How many ended as they should."""
        return sum(not wrong for _, wrong in self.outcomes)

    def cells(self) -> list[str]:
        """In the order of `HEADER`."""
        outcomes = [outcome for outcome, _ in self.outcomes]
        hung = sum(outcome.status is None for outcome in outcomes)
        notices = [o.notice for o in outcomes if o.notice is not None]
        lost = sum(len(outcome.summary.get("lost_workers", ())) for outcome in outcomes)
        return [
            *(self.scheme, self.fault, str(len(outcomes)), str(self.right), str(hung), str(lost)),
            f"{statistics.median(notices):.2f}" if notices else "-",
            f"{max(notices):.2f}" if notices else "-",
            f"{statistics.median(outcome.training for outcome in outcomes):.1f}",
            f"{self.calm.training:.1f}",
        ]


HEADER = (
    *("scheme", "fault", "runs", "right", "hung", "lost", "notice (s), median", "maximum"),
    *("training (s), median", "without a fault"),
)


def measure(
    plans: Sequence[Plan], counts: tuple[int, int], seed: int, out: Path, say: Callable[[str], None]
) -> list[Row]:
    """Run all.

    Args:
        plans: one a scheme.
        counts: runs with a kill, and with a death in a message.
        seed: of workers and moments.
        out: where the runs are kept.
        say: hears of each run.
    """
    rows = []
    for plan in plans:
        for fault, count in zip(("kill", "message"), counts, strict=True):
            own = [f"train.epochs={plan.epochs}"]
            if fault == "message":
                own = [f"train.epochs={plan.epochs_large}", _LARGE]
            config = job.load(plan.config, own)
            synchronous = not isinstance(config.scheme, Asynchronous)
            scheme = config.scheme.name
            own += ["cluster.on_loss=continue", stragglers_of(config, _RANKS - 1)]
            runs = Runs(plan.config, _RANKS, out / f"{scheme}-{fault}", own, _PATIENCE)
            outcomes = []
            for outcome in runs.trials([fault], seed, count):
                wrong = right(outcome, runs.calm, synchronous=synchronous)
                outcomes.append((outcome, wrong))
                say(f"{scheme}, {fault} of worker {outcome.worker}: {wrong or 'right'}")
            rows.append(Row(scheme, fault, tuple(outcomes), runs.calm))
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """The table, and what it comes to."""
    lines = [HEADER, ("---", "---", *["---:"] * (len(HEADER) - 2)), *(row.cells() for row in rows)]
    every = [outcome for row in rows for outcome, _ in row.outcomes]
    notices = [o.notice for o in every if o.notice is not None]
    good = sum(row.right for row in rows)
    said = f"{good} of {len(every)} runs ended as they should"
    if notices:
        said += f"; a loss was noticed after {statistics.median(notices):.2f} s (median), {max(notices):.2f} s at most"
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", f"{said}.", ""])
