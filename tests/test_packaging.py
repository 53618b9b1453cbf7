"""setup.cfg declares what an installation needs and brings: nothing missing, nothing unused."""

from __future__ import annotations

import ast
import re
import sys
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "psopt"
# Modules that are not called as their distributions are.
DISTRIBUTIONS = {"yaml": "pyyaml", "PIL": "pillow"}
OPTIONAL = ("plot", "images")


def setup_cfg() -> ConfigParser:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def names(requirements: str) -> set[str]:
    """The distributions in a list such as `torch>=2.10`, one a line."""
    return {
        re.split(r"[^A-Za-z0-9_-]", line)[0].lower()
        for line in requirements.splitlines()
        if line and not line.startswith("#")
    }


def imported(path: Path) -> set[str]:
    """The distributions that a file imports, at whatever depth."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add((node.module or "").partition(".")[0])
    others = modules - sys.stdlib_module_names - {"psopt"}
    return {DISTRIBUTIONS.get(module, module).lower() for module in others}


def test_requirements_are_the_imports() -> None:
    config = setup_cfg()
    extras = config["options.extras_require"]
    optional = set().union(*(names(extras[extra]) for extra in OPTIONAL))
    used = set().union(*(imported(path) for path in PACKAGE.rglob("*.py")))
    assert used - optional == names(config["options"]["install_requires"])
    assert optional <= used


def test_jobs_need_what_some_extra_brings() -> None:
    config = setup_cfg()
    declared = names(config["options"]["install_requires"])
    declared |= names("\n".join(config["options.extras_require"].values()))
    used = set().union(*(imported(path) for path in (ROOT / "jobs").glob("*.py")))
    assert used <= declared


def test_constraints_name_requirements_exactly() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    config = setup_cfg()
    declared = names(config["options"]["install_requires"])
    declared |= names("\n".join(config["options.extras_require"].values()))
    assert names("\n".join(pins)) <= declared
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", pin) for pin in pins)


def test_data_files_are_packaged() -> None:
    """Whatever is in the package and is not Python matches a pattern of package_data."""
    patterns = {
        PACKAGE.joinpath(*package.split(".")[1:]): patterns.split()
        for package, patterns in setup_cfg()["options.package_data"].items()
    }
    packaged = {
        path for folder, globs in patterns.items() for g in globs for path in folder.glob(g)
    }
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    data = {path for path in files if path.suffix != ".py"}
    assert PACKAGE / "data" / "sample.h5" in data
    assert data == packaged


def test_console_script_exists() -> None:
    script = setup_cfg()["options.entry_points"]["console_scripts"].strip()
    name, target = (part.strip() for part in script.split("="))
    module, attribute = target.split(":")
    assert name == "psopt"
    assert callable(getattr(import_module(module), attribute))
