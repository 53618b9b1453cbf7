"""What one check of `psopt doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How bad it is: `FAIL` means that runs cannot work, `WARN` that some may not, or slowly."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        level: how bad it is.
        title: the thing that was looked at, in a word or two.
        detail: what was seen there.
        remedy: what to do about it; empty where there is nothing to do.
    """

    level: Level
    title: str
    detail: str
    remedy: str = ""
