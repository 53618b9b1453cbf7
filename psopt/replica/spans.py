"""Where a rank's time goes: named spans on the rank's own clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from psopt.replica.tasks import Span


class SpanLog:
    """Collects spans until they are taken away (with the next reply)."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """Record the block as a span of ``kind``: compute, wait, send, receive."""
        start = perf_counter()
        try:
            yield
        finally:
            self._spans.append((kind, start, perf_counter()))

    def add(self, kind: str, start: float, end: float) -> None:
        """Record a span that was timed elsewhere, in ``time.perf_counter`` seconds."""
        self._spans.append((kind, start, end))

    def stretch(self, kind: str, start: float) -> None:
        """Have the last span last until now; one of ``kind`` from ``start`` where it is of another kind."""
        if self._spans and self._spans[-1][0] == kind:
            start = self._spans.pop()[1]
        self._spans.append((kind, start, perf_counter()))

    def take(self) -> tuple[Span, ...]:
        """The spans since the last call."""
        spans, self._spans = tuple(self._spans), []
        return spans
