"""The import rules between the rooms of the package, and the sizes that its files keep to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "psopt"

# From the top down: a room imports from the lines below its own; rooms of one line not each other.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("cli_chaos", "cli_data", "cli_life", "cli_report", "cli_submit", "cli_sweep"),
    ("bench", "chaos", "study", "sweep"),
    ("running",),
    ("request",),
    ("precheck",),
    ("job",),
    ("report",),
    ("launch",),
    ("roles",),
    ("schemes",),
    ("crew",),
    ("replica",),
    ("models", "data"),
    ("optim",),
    ("record",),
    ("config",),
    ("obituary", "processes", "stopping"),
    ("reading",),
)
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}

# Rooms that see less than what is below them.
ONLY = {
    "report": {"record", "config"},
    "launch": {"record", "config", "obituary", "processes"},
    "schemes": {"crew", "optim", "config"},
    "optim": {"config"},
}
# A scheme knows the crew's contract, and cannot tell which crew it has.
CONTRACT = "psopt.crew.base"
MPI_MODULE = "psopt.crew.mpi"
# The cli asks which rank this process is; in the next two a rank is a column of a file, and a
# benchmark starts another program's ranks.
RANK_ROOMS = ("cli", "record", "report", "bench")

MOST_LINES = 300
MOST_LINES_OF_A_FUNCTION = 50
MOST_LINES_OF_A_JOB = 40


def module_name(path: Path, root: Path) -> str:
    """`psopt/crew/base.py` is `psopt.crew.base`; a package's `__init__` is the package."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """`crew` for `psopt.crew.base`, and the empty string for `psopt` itself."""
    return module.partition(".")[2].partition(".")[0]


def imports_of(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield (line, full name) for all that is imported, at whatever depth of the file.

    `from psopt.crew import mpi` yields `psopt.crew.mpi`, since that is what it may load.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = len(parts) - node.level + (1 if is_package else 0)
                base = ".".join([*parts[:kept], *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else None
            called = node.func.id if isinstance(node.func, ast.Name) else called
            name = node.args[0]
            if called in {"import_module", "__import__"} and isinstance(name, ast.Constant):
                yield node.lineno, str(name.value)


def import_problem(module: str, imported: str) -> str | None:
    """Why `module` may not import `imported`, or None where it may."""
    here = room_of(module)
    if imported.partition(".")[0] == "mpi4py":
        return None if module == MPI_MODULE else f"mpi4py belongs in {MPI_MODULE} only"
    there = room_of(imported)
    # `from psopt import __version__` names the package itself.
    if imported.partition(".")[0] != "psopt" or there not in LEVEL_OF or there == here:
        return None
    if here == "":
        return f"psopt itself is imported by every room, so it may not import {there}"
    if LEVEL_OF[there] <= LEVEL_OF[here]:
        return f"{here} may not import {there}: imports point only downwards"
    if here in ONLY and there not in ONLY[here]:
        return f"{here} imports {' and '.join(sorted(ONLY[here]))} only, not {there}"
    if here == "schemes" and there == "crew" and not imported.startswith(CONTRACT):
        return f"schemes know the crew by {CONTRACT}, not by {imported}"
    return None


def rank_tests(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare a rank with a number, or take one as true or false.

    A choice between two texts is a label for people, and not meant.
    """
    labels = {
        node.test
        for node in ast.walk(tree)
        if isinstance(node, ast.IfExp) and _is_text(node.body) and _is_text(node.orelse)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and node not in labels:
            sides = [node.left, *node.comparators]
            equality = all(isinstance(sign, ast.Eq | ast.NotEq) for sign in node.ops)
            number = any(isinstance(side, ast.Constant) for side in sides)
            # `rank > 0` of a plain name is about a table of ranks more often than about this one.
            about = [side for side in sides if equality or not isinstance(side, ast.Name)]
            if number and any(_is_rank(side) for side in about):
                yield node.lineno
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            test = node.test
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test = test.operand
            if _is_rank(test):
                yield node.lineno


def _is_text(node: ast.expr) -> bool:
    is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_string or isinstance(node, ast.JoinedStr)


def _is_rank(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    name = getattr(node, "attr", None) or getattr(node, "id", "")
    return bool(re.fullmatch(r"(get_)?rank", name, re.IGNORECASE))


def long_functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, message) for functions whose body, without its docstring, is too long."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines >= MOST_LINES_OF_A_FUNCTION:
                yield node.lineno, f"{node.name} has {lines} lines: which two ideas live in it?"


def problems_of(path: Path, root: Path) -> list[str]:
    """All that a file of the package does against the rules, as `file:line: message`."""
    module = module_name(path, root)
    source = path.read_text()
    tree = ast.parse(source, str(path))
    found: list[tuple[int, str]] = []
    if room_of(module) not in {*LEVEL_OF, ""}:
        found.append((1, f"{room_of(module)} is not a room; add it to LEVELS where it belongs"))
    else:
        imported = imports_of(tree, module, is_package=path.name == "__init__.py")
        named = ((line, import_problem(module, name)) for line, name in imported)
        found += [(line, problem) for line, problem in named if problem is not None]
    if room_of(module) not in RANK_ROOMS:
        found += [
            (line, "which rank this is, is asked in cli.py only") for line in rank_tests(tree)
        ]
    found += long_functions(tree)
    count = len(source.splitlines())
    if count > MOST_LINES:
        found.append((MOST_LINES, f"{count} lines: which two ideas live in it?"))
    return [f"{path.relative_to(root)}:{line}: {message}" for line, message in sorted(set(found))]


def test_rules_are_kept() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files
    problems = [problem for path in files for problem in problems_of(path, ROOT)]
    assert not problems, "\n" + "\n".join(problems)


def test_every_room_is_a_package() -> None:
    """Without its `__init__.py` a room would be missing from the wheel."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    bare = [folder for folder in folders if not (folder / "__init__.py").is_file()]
    assert bare == []


def test_jobs_stay_thin() -> None:
    sizes = dict.fromkeys((ROOT / "jobs").glob("*.py"), MOST_LINES_OF_A_JOB)
    long = {
        str(path.relative_to(ROOT)): lines
        for path, most in sizes.items()
        if (lines := len(path.read_text().splitlines())) > most
    }
    assert long == {}


FORBIDDEN = [
    ("psopt/config/a.py", "import psopt.record", "config may not import record"),
    ("psopt/config/a.py", "def f():\n    from psopt.cli import main", "config may not import cli"),
    ("psopt/record/a.py", "from ..data import plan", "record may not import data"),
    ("psopt/record/__init__.py", "from ..data import plan", "record may not import data"),
    ("psopt/models/a.py", "from psopt import data", "models may not import data"),
    ("psopt/data/a.py", "from psopt.models.zoo import mlp", "data may not import models"),
    ("psopt/crew/base.py", "import psopt.schemes as s", "crew may not import schemes"),
    ("psopt/crew/sim.py", "from mpi4py import MPI", "mpi4py belongs in psopt.crew.mpi only"),
    ("psopt/cli.py", "import mpi4py.MPI", "mpi4py belongs in psopt.crew.mpi only"),
    ("psopt/cli.py", "importlib.import_module('mpi4py.run')", "mpi4py belongs in"),
    ("psopt/schemes/a.py", "import psopt.models", "crew and optim only, not models"),
    ("psopt/schemes/a.py", "from psopt import data", "crew and optim only, not data"),
    ("psopt/schemes/a.py", "from psopt.crew import mpi", "not by psopt.crew.mpi"),
    ("psopt/schemes/a.py", "from ..crew.sim import SimCrew", "not by psopt.crew.sim.SimCrew"),
    ("psopt/report/a.py", "import psopt.launch", "config and record only, not launch"),
    (
        "psopt/launch/a.py",
        "import psopt.crew",
        "config and obituary and processes and record only, not crew",
    ),
    ("psopt/optim/a.py", "import psopt.record", "config only, not record"),
    ("psopt/__init__.py", "from psopt.config import x", "may not import config"),
    ("psopt/__init__.py", "from . import config", "may not import config"),
    ("psopt/utils/a.py", "x = 1", "utils is not a room"),
    ("psopt/roles/a.py", "if comm.rank == 0: pass", "asked in cli.py only"),
    ("psopt/crew/mpi.py", "x = 1 if 0 != comm.Get_rank() else 2", "asked in cli.py only"),
    ("psopt/replica/a.py", "while not rank: pass", "asked in cli.py only"),
    ("psopt/roles/a.py", "if world.rank > 0: pass", "asked in cli.py only"),
    ("psopt/data/a.py", "x = 1\n" * 301, "301 lines"),
    ("psopt/data/a.py", "def f():\n" + "    x = 1\n" * 50, "f has 50 lines"),
]
ALLOWED = [
    ("psopt/crew/mpi.py", "from mpi4py import MPI\nfrom psopt.crew.base import Crew"),
    ("psopt/crew/mpi.py", "for rank in range(1, comm.size):\n    if rank not in lost: pass"),
    ("psopt/schemes/a.py", "from psopt.crew.base import Crew\nfrom psopt.config import Duration"),
    ("psopt/schemes/a.py", "from . import base\nfrom .base import Scheme\nimport torch"),
    ("psopt/cli.py", "from psopt import __version__\nimport psopt.report\nif comm.rank == 0: pass"),
    ("psopt/record/a.py", "if rank == 0: pass"),
    ("psopt/roles/a.py", "workers = [rank for rank in table if rank > 0]"),
    ("psopt/crew/a.py", "who = 'coordinator' if rank == 0 else f'worker {rank - 1}'"),
    ("psopt/data/a.py", "x = 1\n" * 300),
    ("psopt/data/a.py", 'def f():\n    """' + "\n" * 60 + '    """\n' + "    x = 1\n" * 49),
]


def plant(tmp_path: Path, name: str, source: str) -> list[str]:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(source)
    return problems_of(path, tmp_path)


@pytest.mark.parametrize(("name", "source", "message"), FORBIDDEN)
def test_planted_violation(tmp_path: Path, name: str, source: str, message: str) -> None:
    (problem,) = plant(tmp_path, name, source)
    assert problem.startswith(f"{name}:")
    assert message in problem


@pytest.mark.parametrize(("name", "source"), ALLOWED)
def test_nothing_wrong(tmp_path: Path, name: str, source: str) -> None:
    assert plant(tmp_path, name, source) == []
