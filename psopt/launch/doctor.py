"""`psopt doctor`: what on this machine would keep a run from working, and what to do about it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from psopt.launch import checks, slurm_checks
from psopt.launch.finding import Finding, Level
from psopt.launch.flavour import (
    Flavour,
    MpirunError,
    detect_flavour,
    find_mpirun,
    mpirun_argv,
)
from psopt.launch.probe import RANKS, probe

_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}
_TITLE_WIDTH = len("HDF5 locking")  # the longest title


def doctor(console: Console) -> int:
    """Examine this machine, print each finding as it comes, and a verdict.

    Returns:
        0 where runs can work, warnings included; 1 where something is broken.
    """
    counts = dict.fromkeys(Level, 0)
    for finding in examine():
        counts[finding.level] += 1
        show(console, finding)
    console.print()
    if counts[Level.FAIL]:
        console.print(Text(f"Not ready to run, failures: {counts[Level.FAIL]}."))
        return 1
    warnings = f", warnings: {counts[Level.WARN]}" if counts[Level.WARN] else ""
    console.print(Text(f"Ready to run{warnings}."))
    return 0


def examine() -> Iterator[Finding]:
    """Yield the findings, the quick ones first."""
    cores = len(os.sched_getaffinity(0))
    torch = checks.check_torch()
    yield torch
    if torch.level is not Level.FAIL:
        yield checks.check_gpus()
    yield checks.check_cores(os.environ, cores)
    yield checks.check_threads(os.environ, cores)
    for directory in _directories():
        disk = checks.check_disk(directory)
        yield disk
        if disk.level is not Level.FAIL:
            yield checks.check_locking(os.environ, directory)
    yield from _examine_mpi()


def _directories() -> list[Path]:
    """Where jobs are started and where their run directories go: often two file systems."""
    here = Path.cwd()
    return [here, *(path for path in (here / "runs",) if path.is_dir())]


def _examine_mpi() -> Iterator[Finding]:
    yield slurm_checks.check_commands()
    try:
        mpirun = find_mpirun()
        flavour = detect_flavour(mpirun)
    except MpirunError as error:
        yield Finding(Level.FAIL, "mpirun", str(error))
        return
    yield from slurm_checks.check_srun(flavour)
    argv = mpirun_argv(mpirun, flavour, RANKS)
    yield _describe(flavour, argv)
    yield probe(argv, flavour)


def _describe(flavour: Flavour, argv: list[str]) -> Finding:
    detail = f"{flavour.value}, started as: {shlex.join(argv)}"
    if flavour is Flavour.OTHER:
        remedy = "psopt knows the options of MPICH (Intel MPI, MVAPICH) and Open MPI only"
        return Finding(Level.WARN, "mpirun", detail, remedy)
    return Finding(Level.OK, "mpirun", detail)


def show(console: Console, finding: Finding) -> None:
    """Print one finding in columns, its remedy below its detail."""
    text = Text(finding.detail)
    if finding.remedy:
        text.append(f"\nremedy: {finding.remedy}", "italic")
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=max(len(level.value) for level in Level))
    row.add_column(width=_TITLE_WIDTH)
    row.add_column(overflow="fold")
    row.add_row(Text(finding.level.value, _STYLES[finding.level]), Text(finding.title), text)
    console.print(row)
