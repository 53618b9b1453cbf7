"""The job script: text that bash runs on a job's first node, and that starts the ranks.

Every value is either of a kind that cannot be anything else (`config/batch_text.py`) or quoted here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psopt.config import JobConfig
from psopt.launch.directives import directive, directives
from psopt.launch.placement import Placement, place
from psopt.launch.site import Site
from psopt.record import OUTPUT, BatchFiles

_TASK = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"


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


@dataclass(frozen=True, slots=True)
class Array:
    """Runs of a sweep that are one array of jobs.

    Attributes:
        folder: of the array, within the sweep's directory; `runs` in it names a run's directory in a line.
        tasks: how many runs.
        most: of them at a time; None: as many as there is room for.
        simulated: whether they are on the virtual cluster, without ranks.
    """

    folder: Path
    tasks: int
    most: int | None
    simulated: bool


def script(config: JobConfig[Any], site: Site, start: Start) -> str:
    """The script of one run; it starts the run, and goes on with it when it is started again.

    Args:
        config: the job, checked by `check_batch`.
        site: where it will run, with the job's own commands.
        start: what is started.

    Raises:
        ScriptError: a path holds what no script can.
    """
    log = BatchFiles(start.run).directory / "%j.log"
    return _text(
        start,
        ["#!/bin/bash", *directives(config, site, log, place(config))],
        ["set -eu", f"cd {shlex.quote(str(start.folder))}"],
        [*_warning(config)],
        [*_environment(config, site)],
        [f"run={shlex.quote(str(start.run))}", *_first_or_again("batch/job.yaml")],
        [*_ranks(config, site, start)],
        [*_ending(config, site, "$SLURM_JOB_ID")],
    )


def array_script(config: JobConfig[Any], site: Site, start: Start, array: Array) -> str:
    """The script of an array of jobs, whose tasks each make one run of a sweep.

    Args:
        config: a job that stands for all: they ask for the same.
        site: where it will run, with the job's own commands.
        start: what is started; `run` is the sweep's directory.
        array: which runs.

    Raises:
        ScriptError: a path holds what no script can.
    """
    placed = Placement(1, 1, None) if array.simulated else place(config)
    indices = f"0-{array.tasks - 1}" + (f"%{array.most}" if array.most else "")
    head = directives(config, site, array.folder / "%A.log", placed)
    launch = _alone(config, start) if array.simulated else _ranks(config, site, start)
    return _text(
        start,
        ["#!/bin/bash", *head, directive("--array", indices)],
        ["set -eu", f"cd {shlex.quote(str(start.folder))}"],
        [*_warning(config)],
        [
            "# A line of `runs` is a run; what it says is kept in its directory.",
            f"sweep={shlex.quote(str(start.run))}",
            f'runs="$sweep/{(array.folder / "runs").relative_to(start.run)}"',
            'run="$sweep/runs/$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$runs")"',
            f'exec >> "$run/{OUTPUT}" 2>&1',
            f'echo "job {_TASK}"',
        ],
        [*_environment(config, site)],
        [*_first_or_again("job.yaml")],
        [*launch],
        [*_ending(config, site, _TASK)],
    )


def _text(start: Start, *parts: list[str]) -> str:
    for path in (start.python, start.folder, start.run):
        _check_path(path)
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _environment(config: JobConfig[Any], site: Site) -> Iterator[str]:
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
        yield f"trap psopt_warn {batch.signal} # whatever they have set"
        yield ""
    told = "SLURM_CPUS_PER_TASK" + ("_HET_GROUP_1" if batch.heterogeneous else "")
    yield f'cpus="${{{told}:-{batch.cpus_per_task}}}"'
    yield 'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$cpus}"'


def _first_or_again(job: str) -> Iterator[str]:
    yield 'if [ -e "$run/config.yaml" ]; then # requeued: go on from the newest checkpoint'
    yield '  job=(--resume "$run")'
    yield "else"
    yield f'  job=("$run/{job}" --out "$run")'
    yield "fi"


def _ranks(config: JobConfig[Any], site: Site, start: Start) -> Iterator[str]:
    """Start the ranks of `job` and wait for them; leaves `status`."""
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
    if batch.heterogeneous:
        yield from _unless_warned(
            f'{launch} --het-group=0 --cpus-per-task="$cpus" {program} \\',
            f'  : --het-group=1 --cpus-per-task="$cpus" {program} &',
        )
    else:
        yield from _unless_warned(f'{launch} --cpus-per-task="$cpus" \\', f"  {program} &")


def _alone(config: JobConfig[Any], start: Start) -> Iterator[str]:
    """The same of a run on the virtual cluster, which is one process."""
    yield from _unless_warned(
        f'{shlex.quote(str(start.python))} -m psopt run "${{job[@]}}" --simulate &'
    )


def _warning(config: JobConfig[Any]) -> Iterator[str]:
    """Hand a warning on to the ranks."""
    yield f"# Slurm warns this shell {config.batch.signal_seconds} s before the time limit; the ranks are to know."
    yield "psopt_warned='' psopt_step=''"
    tell = f'[ -z "$psopt_step" ] || kill -s {config.batch.signal} "$psopt_step" || true'
    yield f"psopt_warn() {{ psopt_warned=yes; {tell}; }}"
    yield f"trap psopt_warn {config.batch.signal}"


def _unless_warned(*launch: str) -> Iterator[str]:
    """Start the step in the background and wait; one that would have to stop at once is not started."""
    yield 'if [ -z "$psopt_warned" ]; then'
    yield from (f"  {line}" for line in launch)
    yield "  psopt_step=$!"
    yield '  [ -z "$psopt_warned" ] || { sleep 1; psopt_warn; } # it came in between'
    yield "  # A signal ends a wait early."
    yield '  while kill -0 "$psopt_step" 2> /dev/null; do wait "$psopt_step" || true; done'
    yield "  status=0"
    yield '  wait "$psopt_step" || status=$?'
    yield "else"
    yield '  echo "warned before the ranks were started: the lines above took too long" >&2'
    yield "  status=1"
    yield "fi"


def _ending(config: JobConfig[Any], site: Site, job: str) -> Iterator[str]:
    """Have a run that a warning has stopped go on later, where there is something to go on from."""
    if config.batch.requeue:
        yield "# 2 and 3 are a job that is not valid, and one that diverged: they would do so again, and so"
        yield "# would one that is warned before its ranks have started."
        yield 'if [ -n "$psopt_warned" ] && [ -n "$psopt_step" ] &&'
        yield '  compgen -G "$run/checkpoints/step-*.h5" > /dev/null; then'
        yield '  case "$status" in'
        yield "    0 | 2 | 3) ;;"
        yield f'    *) {shlex.quote(site.commands.control)} requeue "{job}" || true ;;'
        yield "  esac"
        yield "fi"
    yield 'exit "$status"'


def _check_path(path: Path) -> None:
    text = str(path)
    if not text.isprintable():
        raise ScriptError(
            f"{text!r}: a job script cannot hold line breaks and control characters; use another directory"
        )
    if "\\" in text:
        raise ScriptError(f"{text}: Slurm reads a backslash otherwise; use a directory without one")
