"""All tests of the numerics compute with one thread."""

from __future__ import annotations

from tests.threads import one_thread

__all__ = ["one_thread"]
