"""The one error of this room."""

from __future__ import annotations


class DataError(ValueError):
    """A dataset, or a file to import, is missing, damaged or not what it should be.

    The message says which file, what is wrong with it, and what to do.
    """
