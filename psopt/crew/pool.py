"""Memory for the vectors of replies, used again once a reply has been read."""

from __future__ import annotations

from psopt.crew.base import Vectors


class Pool:
    """Sets of vectors that are free, and those that are lent to the caller of the crew."""

    def __init__(self) -> None:
        self._lent: list[Vectors] = []
        self._free: list[Vectors] = []

    def take(self) -> Vectors:
        """A free set, or none."""
        return self._free.pop() if self._free else ()

    def lend(self, vectors: Vectors) -> None:
        """They belong to the caller until ``take_back``."""
        self._lent.append(vectors)

    def take_back(self) -> None:
        """What was lent is free again."""
        for vectors in self._lent:
            self.release(vectors)
        self._lent.clear()

    def release(self, vectors: Vectors) -> None:
        """They are free."""
        if vectors:
            self._free.append(vectors)
