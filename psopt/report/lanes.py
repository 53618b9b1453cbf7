"""The spans of a timeline by rank, their waiting shares, and a stretch of it that can be read."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from psopt.config import one_line

_ROUNDS = 8.0  # so many rounds of a typical worker are shown
_SLOWEST = 2.5  # and at least so many batches of the slowest one
_STEPS = 3.0  # and at least so many steps of the server
_CANDIDATES = 64
_PAUSES = ("evaluate", "checkpoint")  # the run's clock stands still for everybody


@dataclass(slots=True)
class Lane:
    """What one rank did.

    Attributes:
        rank: 0 for the coordinator.
        label: the rank's name.
        spans: (kind, start, end) in seconds, by start.
    """

    rank: int
    label: str
    spans: list[tuple[str, float, float]] = field(default_factory=list)

    @property
    def waiting(self) -> float | None:
        """Share of time spent waiting, see `waiting_share`."""
        return waiting_share([self])

    def of(self, kind: str) -> list[tuple[float, float]]:
        """(start, end) of the spans of a kind, by start."""
        return [(start, end) for name, start, end in self.spans if name == kind]


def waiting_share(several: Sequence[Lane]) -> float | None:
    """Share of time that ranks spent waiting, in [0, 1]; None where there is no span.

    Evaluations and checkpoints do not count: the run's clock stands still for them.
    """
    busy = [
        (kind, end - start)
        for lane in several
        for kind, start, end in lane.spans
        if kind not in _PAUSES
    ]
    spent = sum(seconds for _, seconds in busy)
    return sum(seconds for kind, seconds in busy if kind == "wait") / spent if spent > 0 else None


def lanes(events: Sequence[dict[str, Any]]) -> list[Lane]:
    """One lane a rank that has spans, by rank."""
    found: dict[int, Lane] = {}
    names: dict[int, str] = {}
    for event in events:
        rank = event.get("tid", 0)
        if event.get("ph") == "X":
            lane = found.setdefault(rank, Lane(rank, _default_name(rank)))
            start = event["ts"] / 1e6
            lane.spans.append((one_line(event["name"]), start, start + event["dur"] / 1e6))
        elif event.get("name") == "thread_name":
            names[rank] = one_line(event["args"]["name"])
    for rank, lane in found.items():
        lane.label = names.get(rank, lane.label)
        lane.spans.sort(key=lambda span: span[1])
    return [found[rank] for rank in sorted(found)]


def choose(every: Sequence[Lane], most: int) -> list[Lane]:
    """The coordinator, and workers from the one that waits least to the one that waits most.

    Args:
        every: all lanes, by rank.
        most: how many lanes to return at most, at least 3.
    """
    if len(every) <= most:
        return list(every)
    workers = sorted((lane for lane in every if lane.rank != 0), key=lambda lane: lane.waiting or 0)
    slots = most - (len(every) - len(workers))
    picked = {round(slot * (len(workers) - 1) / (slots - 1)) for slot in range(slots)}
    ranks = {workers[index].rank for index in picked} | {0}
    return [lane for lane in every if lane.rank in ranks]


def extent(every: Sequence[Lane]) -> tuple[float, float]:
    """Start of the first span and end of the last one, in seconds; there is at least one."""
    first = min(lane.spans[0][1] for lane in every)
    return first, max(end for lane in every for _, _, end in lane.spans)


def window(every: Sequence[Lane], step: float = 0.0) -> tuple[float, float]:
    """Start and end, in seconds, of a typical stretch of a few rounds, away from evaluations.

    Typical means that its share of computing is the run's: the picture must not flatter the scheme.

    Args:
        every: at least one lane with a span.
        step: seconds of a step of the run; at least a few are shown.
    """
    first, last = extent(every)
    length = min(max(_length(every) or last - first, _STEPS * step), last - first)
    starts = [first + (last - length - first) * k / _CANDIDATES for k in range(_CANDIDATES + 1)]
    paused = _busy(every, _PAUSES, starts, length)
    calm = [k for k in range(len(starts)) if paused[k] <= min(paused) + 1e-9]
    computing = _busy(every, ("compute",), starts, length)
    typical = statistics.fmean(computing[k] for k in calm)
    start = starts[min(calm, key=lambda k: abs(computing[k] - typical))]
    return start, start + length


def _length(every: Sequence[Lane]) -> float | None:
    """Seconds that show several rounds of a typical worker, and some of the slowest one."""
    periods, batches = [], []
    for lane in every:
        computing = lane.of("compute")
        starts = [start for start, _ in computing]
        if len(starts) > 1:
            periods.append(statistics.median(b - a for a, b in pairwise(starts)))
        if computing:
            batches.append(statistics.median(end - start for start, end in computing))
    if not periods:
        return None
    return max(_ROUNDS * statistics.median(periods), _SLOWEST * max(batches))


def _busy(
    every: Sequence[Lane], kinds: Sequence[str], starts: Sequence[float], length: float
) -> list[float]:
    """Seconds that the spans of these kinds take in each of the windows at `starts`."""
    spans = sorted(span for lane in every for kind in kinds for span in lane.of(kind))
    longest = max((end - start for start, end in spans), default=0.0)
    found = []
    for start in starts:
        low = bisect_left(spans, (start - longest,))
        high = bisect_left(spans, (start + length,))
        found.append(
            sum(max(0.0, min(start + length, b) - max(start, a)) for a, b in spans[low:high])
        )
    return found


def _default_name(rank: int) -> str:
    return "coordinator" if rank == 0 else f"worker {rank - 1}"
