"""Texts of the `batch` section, which reach a job script and the batch system's command line.

None of them can become more than it is: another line of the script, another option, or a command.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema

# An option of sbatch with what it is set to: whatever Slurm's own options are written with.
EXTRA_PATTERN = r"(--[a-z][a-z0-9-]*(=[A-Za-z0-9_./:,@%+=&|*!?^~{}\[\]() -]+)?|-[A-Za-z])"

OWN_OPTIONS = {
    "--account": "batch.account",
    "--cpus-per-task": "batch.cpus_per_task",
    "--exclude": "batch.exclude",
    "--gpus": "batch.gpus_per_node",
    "--gpus-per-node": "batch.gpus_per_node",
    "--gres": "batch.gpus_per_node",
    "--job-name": "name",
    "--mem": "batch.memory",
    "--mpi": "batch.mpi",
    "--no-requeue": "batch.requeue",
    "--nodes": "batch.nodes",
    "--ntasks": "cluster.workers",
    "--ntasks-per-node": "batch.tasks_per_node",
    "--partition": "batch.partition",
    "--qos": "batch.qos",
    "--requeue": "batch.requeue",
    "--signal": "batch.signal",
    "--time": "batch.time",
}
"""Options that keys of the job stand for."""

SCRIPTS_OPTIONS = {
    "--array": "the tasks of an array would share one run directory",
    "--chdir": "a job runs where it is submitted",
    "--error": "the log is kept in the run directory",
    "--open-mode": "a job that is requeued adds to its log",
    "--output": "the log is kept in the run directory",
    "--parsable": "psopt asks for the answer that it can read",
    "--test-only": "say it to `psopt submit`",
    "--wrap": "psopt writes the script",
}
"""Options that psopt sets, or that a job cannot have, and why."""

SHORT = {"-A": "--account", "-a": "--array", "-c": "--cpus-per-task", "-D": "--chdir"} | {
    "-e": "--error",
    "-G": "--gpus",
    "-J": "--job-name",
    "-N": "--nodes",
    "-n": "--ntasks",
    "-o": "--output",
    "-p": "--partition",
    "-q": "--qos",
    "-t": "--time",
    "-x": "--exclude",
}

_PREAMBLE_FORBIDS = {
    "`": "a command in backticks",
    "$(": "a command in $( )",
    ";": "a second command after ';'",
    "&": "'&'",
    "|": "'|'",
    "<": "'<'",
    ">": "'>'",
}
_COMPOUND = {
    *(
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "in",
    ),
    *(
        "select",
        "function",
        "time",
        "{",
        "}",
        "(",
        ")",
        "!",
        "[[",
        "exec",
        "exit",
        "return",
        "trap",
        "set",
    ),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a text has to look like; put it into `Annotated[str, ...]`.

    Attributes:
        pattern: a regular expression for the whole text.
        what: the kind of text, with its article.
        allowed: how to write one.
    """

    pattern: str
    what: str
    allowed: str

    def check(self, text: str) -> str:
        """Return the text unchanged.

        Raises:
            ValueError: it is of another shape.
        """
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"{text!r} is not {self.what}: {self.allowed}")
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return AfterValidator(self.check).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(
        self, schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^({self.pattern})$"}


def option_name(text: str) -> str:
    """The long name of an option, which may be short and have a value: `-n4` is `--ntasks`."""
    name = text.partition("=")[0]
    return name if name.startswith("--") else SHORT.get(name[:2], name)


def extra_option(text: str) -> str:
    """Return one option of the batch system unchanged.

    Raises:
        ValueError: it is none, holds what no option holds, or is psopt's to set.
    """
    if not re.fullmatch(EXTRA_PATTERN, text):
        raise ValueError(
            f"{text!r} is not an option: write '--name' or '--name=value' in one item, the value without "
            "quotes, '$', '`', ';', '#', '<', '>', backslashes and line breaks"
        )
    name = option_name(text)
    if name in OWN_OPTIONS:
        raise ValueError(f"{text!r}: use the key {OWN_OPTIONS[name]!r} instead")
    if name in SCRIPTS_OPTIONS:
        raise ValueError(f"{text!r} cannot be set: {SCRIPTS_OPTIONS[name]}")
    if "hetjob" in text.lower() or "packjob" in text.lower():
        raise ValueError(f"{text!r} cannot be set: use 'heterogeneous: true'")
    return text


def preamble_line(text: str) -> str:
    """Return one simple command of a shell unchanged; variables may be in it, such as $HOME.

    Raises:
        ValueError: it is more than that.
    """
    if not text.isprintable() or not text.strip():
        raise ValueError(f"{text!r} is not a line of the preamble: write one command an item")
    for sign, what in _PREAMBLE_FORBIDS.items():
        if sign in text:
            raise ValueError(
                f"{text!r} is not a line of the preamble: it has {what}; write one simple command an item, "
                "and put what needs more into a file that it sources"
            )
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        reason = "a quote is not closed" if "quot" in str(error) else "it ends in a backslash"
        raise ValueError(f"{text!r} is not a line of the preamble: {reason}") from None
    if words and (words[0] in _COMPOUND or words[0].startswith(("(", "[["))):
        raise ValueError(
            f"{text!r} is not a line of the preamble: {words[0]!r} is no simple command; put it into a file "
            "that a line sources"
        )
    return text


_LETTERS = "use letters, digits, '_', '.', '@', '+' and '-', not beginning with '-'"
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*"

SiteName = Annotated[str, Shape(r"[a-z][a-z0-9_]*", "a site", "use small letters, digits and '_'")]
Partition = Annotated[
    str, Shape(rf"{_WORD}(,{_WORD})*", "a partition", f"{_LETTERS}; ',' stands between several")
]
Account = Annotated[str, Shape(_WORD, "an account", _LETTERS)]
Qos = Annotated[str, Shape(_WORD, "a quality of service", _LETTERS)]
NodeRange = Annotated[
    str,
    Shape(
        r"[A-Za-z0-9][A-Za-z0-9_.-]*(\[[0-9,-]+\][A-Za-z0-9_.-]*)*",
        "a node or a range of nodes",
        "write 'cn7' or 'cn[10-12,20]', one an item",
    ),
]
ModuleName = Annotated[
    str,
    Shape(
        r"[A-Za-z0-9_][A-Za-z0-9_./@:+-]*",
        "a module",
        "use letters, digits, '_', '.', '/', '@', ':', '+' and '-', not beginning with '-'",
    ),
]
MpiName = Annotated[
    str, Shape(r"[a-z][a-z0-9_]*", "a value of srun --mpi", "write one of `srun --mpi=list`")
]
Program = Annotated[
    str,
    Shape(
        r"[A-Za-z0-9_/][A-Za-z0-9_./+-]*",
        "a command",
        "write a program's name, or its path of letters, digits, '_', '.', '/', '+' and '-'",
    ),
]
ExtraOption = Annotated[
    str,
    AfterValidator(extra_option),
    WithJsonSchema({"type": "string", "pattern": f"^{EXTRA_PATTERN}$"}),
]
PreambleLine = Annotated[
    str,
    AfterValidator(preamble_line),
    WithJsonSchema({"type": "string", "pattern": r"^[^`;&|<>\n]+$"}),
]
