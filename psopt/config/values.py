"""The value types of a job file: names, import paths, durations and byte counts."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
IMPORT_PATTERN = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*"

_CLOCK = re.compile(
    r"(?:(?P<days>[0-9]+)-)?(?P<hours>[0-9]+):(?P<minutes>[0-9]{2}):(?P<seconds>[0-9]{2})"
)
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_UNITS = re.compile(
    rf"(?=[0-9])(?:(?P<days>{_NUMBER})d)?(?:(?P<hours>{_NUMBER})h)?"
    rf"(?:(?P<minutes>{_NUMBER})m)?(?:(?P<seconds>{_NUMBER})s)?"
)
_SECONDS = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
_DURATION_FORMS = (
    'a number of seconds, "HH:MM:SS", "D-HH:MM:SS", or text such as "90s", "15m", "2h", "1d"'
)

_SIZE = re.compile(rf"(?P<number>{_NUMBER}) ?(?P<unit>B|[kKMGT]i?B)")
_SIZE_UNITS = {"B": 1} | {
    letter + infix + "B": base**power
    for power, letters in enumerate(("kK", "M", "G", "T"), start=1)
    for letter in letters
    for infix, base in (("", 1000), ("i", 1024))
}


def job_name(text: str) -> str:
    """Return a job name that is safe in file names, sbatch scripts and queue listings.

    Raises:
        ValueError: it is not, with what is allowed.
    """
    if not re.fullmatch(NAME_PATTERN, text):
        raise ValueError(
            f"{text!r} is not a job name: use 1 to 64 letters, digits, '.', '_', '+' and '-', "
            "beginning with a letter or a digit"
        )
    if "-hetjob" in text.lower():
        raise ValueError(f"{text!r} is not a job name: Slurm reserves '-hetjob'; leave it out")
    return text


def import_path(text: str) -> str:
    """Return "package.module:attribute" unchanged.

    Raises:
        ValueError: it has another form.
    """
    if not re.fullmatch(IMPORT_PATTERN, text):
        raise ValueError(f"{text!r} is not an import path: write 'package.module:attribute'")
    return text


def duration(value: Any) -> Any:
    """Turn a duration as people write it into seconds; what is not text passes through.

    Raises:
        ValueError: the text is ambiguous ("1:30") or no duration, with the forms accepted.
    """
    if isinstance(value, bool):
        raise ValueError(f"{value} is not a duration: write {_DURATION_FORMS}")  # noqa: TRY004
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[0-9]+:[0-9]+", value):
        raise ValueError(f'{value!r} is ambiguous (minutes or hours?): write "HH:MM:SS"')
    match = _CLOCK.fullmatch(value)
    if match:
        _check_clock(value, match)
    else:
        match = _UNITS.fullmatch(value)
    if not match:
        raise ValueError(f"{value!r} is not a duration: write {_DURATION_FORMS}")
    seconds = math.fsum(float(n) * _SECONDS[unit] for unit, n in match.groupdict().items() if n)
    if not math.isfinite(seconds):
        raise ValueError(f"{value!r} is longer than a number can hold")
    return seconds


def _check_clock(text: str, match: re.Match[str]) -> None:
    limits = {"minutes": 60, "seconds": 60} | ({"hours": 24} if match["days"] else {})
    for unit, limit in limits.items():
        if int(match[unit]) >= limit:
            raise ValueError(f"{text!r} is not a duration: {unit} go from 0 to {limit - 1}")


def classes(labels: tuple[int, ...]) -> tuple[int, ...]:
    """Return the labels of at least two classes unchanged.

    Raises:
        ValueError: there are fewer, or one of them is there twice.
    """
    if len(labels) < 2:
        raise ValueError(f"there must be at least two classes, not {len(labels)}")
    twice = [label for label in dict.fromkeys(labels) if labels.count(label) > 1]
    if twice:
        raise ValueError(f"the label {twice[0]} is there twice; name each class once")
    return labels


def byte_count(value: Any) -> Any:
    """Turn a size such as "512 MiB" or "2GB" into bytes; what is not text passes through.

    Raises:
        ValueError: the text is no size, with the forms accepted.
    """
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if not match:
        raise ValueError(
            f'{value!r} is not a size: write a number of bytes, or text such as "512 MiB" or "2 GB"'
        )
    return round(float(match["number"]) * _SIZE_UNITS[match["unit"]])


JobName = Annotated[
    str,
    AfterValidator(job_name),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME_PATTERN}$"}),
]
ImportPath = Annotated[
    str, AfterValidator(import_path), WithJsonSchema({"type": "string", "pattern": "^[^:]+:[^:]+$"})
]
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
# Labels of a data set, at least two.
Classes = Annotated[
    tuple[Annotated[int, Field(ge=0, le=2**63 - 1)], ...],
    Field(json_schema_extra={"minItems": 2, "uniqueItems": True}),
    AfterValidator(classes),
]
# Seconds, more than none.
Duration = Annotated[
    float,
    Field(gt=0, allow_inf_nan=False),
    BeforeValidator(duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {
                    "type": "string",
                    "pattern": r"^([0-9]+-)?[0-9]+:[0-9]{2}:[0-9]{2}$|^[0-9.]+[dhms]",
                },
            ]
        }
    ),
]
ByteCount = Annotated[
    int,
    Field(ge=0),
    BeforeValidator(byte_count),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^[0-9.]+ ?(B|[kKMGT]i?B)$"},
            ]
        }
    ),
]
