"""The job script: text that bash runs on a job's first node, and that starts the ranks.

Every value is either of a kind that cannot be anything else (`config/batch_text.py`) or quoted here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt.config import JobConfig
from psopt.launch.placement import Placement, place
from psopt.launch.site import Site
from psopt.record import BatchFiles

_PLAIN = re.compile(r"[^\s\"'\\#]+")


class ScriptError(ValueError):
    """A path cannot stand in a job script; the text names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Start:
    """What the script starts, and where.

    Attributes:
        python: the interpreter, an absolute path.
        folder: the directory in which the job was submitted, where its factories are looked for.
        run: the run directory, an absolute path.
        mpi: for `srun --mpi`.
    """

    python: Path
    folder: Path
    run: Path
    mpi: str


def script(config: JobConfig[Any], site: Site, start: Start) -> str:
    """The script of one run; it starts the run, and goes on with it when it is started again.

    Args:
        config: the job, checked by `check_batch`.
        site: where it will run, with the job's own commands.
        start: what is started.

    Raises:
        ScriptError: a path holds what no script can.
    """
    for path in (start.python, start.folder, start.run):
        _check_path(path)
    parts = [
        ["#!/bin/bash", *directives(config, site, BatchFiles(start.run).directory / "%j.log")],
        ["set -eu", f"cd {shlex.quote(str(start.folder))}"],
        [*environment(config, site)],
        [f"run={shlex.quote(str(start.run))}", *_FIRST_OR_AGAIN],
        [*ranks(config, site, start)],
        [*ending(config, site)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def directives(config: JobConfig[Any], site: Site, log: Path) -> list[str]:
    """The `#SBATCH` lines.

    Args:
        config: the job.
        site: the cluster.
        log: output of the job; its last part may hold Slurm's `%j`, `%A` and `%a`.
    """
    batch = config.batch
    output = str(log.parent).replace("%", "%%") + f"/{log.name}"
    lines = [
        _directive("--job-name", config.name),
        _directive("--output", output),
        _directive("--open-mode", "append"),
        _directive("--signal", f"B:{batch.signal}@{batch.signal_seconds}"),
        _directive("--requeue" if batch.requeue else "--no-requeue"),
    ]
    placed = place(config)
    if batch.heterogeneous:
        partition = batch.coordinator_partition or batch.partition
        lines += [*_component(config, site, Placement(1, 1, None), partition, 0), "#SBATCH hetjob"]
    return [*lines, *_component(config, site, placed, batch.partition, batch.gpus_per_node or 0)]


def _component(
    config: JobConfig[Any], site: Site, placed: Placement, partition: str | None, gpus: int
) -> Iterator[str]:
    """The lines of ranks that are placed together; the other ranks have theirs."""
    batch = config.batch
    options = {
        "--partition": partition,
        "--account": batch.account,
        "--qos": batch.qos,
        "--nodes": placed.nodes,
        "--ntasks": placed.tasks,
        "--ntasks-per-node": placed.tasks_per_node,
        "--cpus-per-task": batch.cpus_per_task,
        "--mem": None if batch.memory is None else f"{-(-batch.memory // 2**20)}M",
        "--time": None if batch.time is None else clock(batch.time),
        "--exclude": ",".join(batch.exclude) or None,
    }
    for name, value in options.items():
        if value is not None:
            yield _directive(name, value)
    if gpus:
        yield f"#SBATCH {site.gpus.format(per_node=gpus, total=gpus * (placed.nodes or 1))}"
    for option in batch.extra:
        name, _, text = option.partition("=")
        yield _directive(name, text or None)


def environment(config: JobConfig[Any], site: Site) -> Iterator[str]:
    """Modules, the job's own lines, and the number of threads."""
    batch = config.batch
    modules = site.modules if batch.modules is None else batch.modules
    if modules or batch.preamble:
        yield "set +u # for files that are not written for it"
    if modules:
        yield "# A shell of a batch job may not know `module` yet."
        yield "# shellcheck source=/dev/null"
        yield "type module > /dev/null 2>&1 || . /etc/profile || true"
        yield from (f"module load {shlex.quote(module)}" for module in modules)
    yield from batch.preamble
    if modules or batch.preamble:
        yield "set -u"
        yield ""
    told = "SLURM_CPUS_PER_TASK" + ("_HET_GROUP_1" if batch.heterogeneous else "")
    yield f'cpus="${{{told}:-{batch.cpus_per_task}}}"'
    yield 'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$cpus}"'


_FIRST_OR_AGAIN = (
    'if [ -e "$run/config.yaml" ]; then # requeued: go on from the newest checkpoint',
    '  job=(--resume "$run")',
    "else",
    '  job=("$run/batch/job.yaml" --out "$run")',
    "fi",
)


def ranks(config: JobConfig[Any], site: Site, start: Start) -> Iterator[str]:
    """Start the ranks of `job`, hand the warning on to them, and wait; leaves `status` and `warned`."""
    batch = config.batch
    program = f'{shlex.quote(str(start.python))} -m psopt run "${{job[@]}}"'
    options = ["--export=ALL", f"--mpi={start.mpi}", "--kill-on-bad-exit=1"]
    launch = f"{shlex.quote(site.commands.launch)} {' '.join(options)}"
    if batch.requeue:
        groups = " --het-group=0,1" if batch.heterogeneous else ""
        yield "# MPICH names shared memory by job and step, and ranks that are killed leave it behind: a"
        yield "# requeued job takes a step of another number, or it would wait for ever."
        yield "for ((n = 0; n < ${SLURM_RESTART_COUNT:-0}; n++)); do"
        yield f"  {shlex.quote(site.commands.launch)}{groups} --mpi=none --nodes=1 --ntasks=1 true || true"
        yield "done"
        yield ""
    note = "warned=yes; " if batch.requeue else ""
    yield f"# Slurm warns this shell {batch.signal_seconds} s before the time limit; the ranks are to know."
    yield "warned='' step=''" if batch.requeue else "step=''"
    yield f"""trap '{note}kill -s {batch.signal} "$step" || true' {batch.signal}"""
    if batch.heterogeneous:
        yield f'{launch} --het-group=0 --cpus-per-task="$cpus" {program} \\'
        yield f'  : --het-group=1 --cpus-per-task="$cpus" {program} &'
    else:
        yield f'{launch} --cpus-per-task="$cpus" \\'
        yield f"  {program} &"
    yield "step=$!"
    yield 'while kill -0 "$step" 2> /dev/null; do wait "$step" || true; done # a signal ends a wait early'
    yield "status=0"
    yield 'wait "$step" || status=$?'


def ending(config: JobConfig[Any], site: Site) -> Iterator[str]:
    """Have a run that a warning has stopped go on later, where there is something to go on from."""
    if config.batch.requeue:
        yield "# 2 and 3 are a job that is not valid, and one that diverged: they would do so again."
        yield 'if [ -n "$warned" ] && compgen -G "$run/checkpoints/step-*.h5" > /dev/null; then'
        yield '  case "$status" in'
        yield "    0 | 2 | 3) ;;"
        yield f'    *) {shlex.quote(site.commands.control)} requeue "$SLURM_JOB_ID" || true ;;'
        yield "  esac"
        yield "fi"
    yield 'exit "$status"'


def clock(seconds: float) -> str:
    """A duration as D-HH:MM:SS, rounded up to whole seconds."""
    whole = -int(-seconds // 1)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day}-{hour:02}:{minute:02}:{second:02}"


def _directive(option: str, value: object = None) -> str:
    """One `#SBATCH` line. Slurm reads quotes and backslashes in it much as a shell does."""
    if value is None:
        return f"#SBATCH {option}"
    text = str(value)
    if not _PLAIN.fullmatch(text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"#SBATCH {option}={text}"


def _check_path(path: Path) -> None:
    text = str(path)
    if not text.isprintable():
        raise ScriptError(
            f"{text!r}: a job script cannot hold line breaks and control characters; use another directory"
        )
    if "\\" in text:
        raise ScriptError(f"{text}: Slurm reads a backslash otherwise; use a directory without one")
