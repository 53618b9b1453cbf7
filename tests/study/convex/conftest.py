"""Runs of a study compute with one thread, as the study does."""

from __future__ import annotations

from tests.threads import one_thread

__all__ = ["one_thread"]
