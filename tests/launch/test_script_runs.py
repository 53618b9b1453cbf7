"""Job scripts under bash, with programs of a few lines in the place of Slurm's."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from psopt.launch.script import script
from tests.launch.goldens import START, prepared

DEADLINE = 30.0
SRUN = """#!/bin/bash
printf '%s\\0' "$@" > "$TOLD/srun.new"; mv "$TOLD/srun.new" "$TOLD/srun"
printf '%s' "${OMP_NUM_THREADS-}" > "$TOLD/threads"
"""
SCONTROL = """#!/bin/bash
printf '%s ' "$@" >> "$TOLD/scontrol"
"""
WARNED = """
count=0
trap 'count=$((count + 1)); echo "warned $count"' USR2
touch "$TOLD/ready"
while [ ! -e "$TOLD/go" ]; do sleep 0.05; done
exit 9
"""


class Node:
    """The first node of a job: programs on PATH, and what they were told in `told`."""

    def __init__(self, folder: Path) -> None:
        self.told, self.bin, self.run = folder / "told", folder / "bin", folder / "run"
        for path in (self.told, self.bin, self.run / "batch"):
            path.mkdir(parents=True)
        self.folder = folder
        self.variables = {"SLURM_JOB_ID": "77", "SLURM_CPUS_PER_TASK": "5"}
        self.program("srun", SRUN)
        self.program("scontrol", SCONTROL)

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def write(self, *overrides: str, run: Path | None = None, **paths: Path) -> Path:
        """The script; of the run in `run`."""
        start = dataclasses.replace(
            START, run=run or self.run, folder=paths.get("folder", self.folder)
        )
        start = dataclasses.replace(start, python=paths.get("python", start.python))
        path = self.folder / "job.sh"
        path.write_text(script(*prepared(*overrides), start))
        return path

    def environment(self) -> dict[str, str]:
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        kept = {name: os.environ[name] for name in ("HOME",) if name in os.environ}
        return {**kept, "PATH": path, "TOLD": str(self.told), **self.variables}

    def start(self, path: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(path)],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, path: Path) -> tuple[int, str]:
        """Exit status and errors."""
        process = self.start(path)
        _, err = process.communicate(timeout=DEADLINE)
        return process.returncode, err

    def srun(self) -> list[str]:
        return (self.told / "srun").read_text().split("\0")[:-1]

    @contextmanager
    def waiting(self, path: Path) -> Iterator[subprocess.Popen[str]]:
        """A script whose ranks run until `go` appears."""
        self.program("srun", SRUN + WARNED)
        process = self.start(path)
        try:
            deadline = time.monotonic() + DEADLINE
            while not (self.told / "ready").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            yield process
        finally:
            (self.told / "go").touch()
            process.communicate(timeout=DEADLINE)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_first_start(node: Node) -> None:
    assert node.finish(node.write("batch.cpus_per_task=3")) == (0, "")
    assert node.srun() == [
        *("--export=ALL", "--mpi=pmi2", "--kill-on-bad-exit=1", "--cpus-per-task=5"),
        *(str(START.python), "-m", "psopt", "run", f"{node.run}/batch/job.yaml"),
        *("--out", str(node.run)),
    ]


def test_second_start_resumes(node: Node) -> None:
    (node.run / "config.yaml").touch()
    assert node.finish(node.write()) == (0, "")
    assert node.srun()[-3:] == ["run", "--resume", str(node.run)]


def test_each_start_has_a_step_of_another_number(node: Node) -> None:
    node.program("srun", SRUN + """printf '%s ' "${@: -1}" >> "$TOLD/last"\n""")
    node.variables["SLURM_RESTART_COUNT"] = "2"
    assert node.finish(node.write()) == (0, "")
    assert (node.told / "last").read_text() == f"true true {node.run} "


def test_threads_follow_the_cores(node: Node) -> None:
    path = node.write("batch.cpus_per_task=3")
    node.finish(path)
    assert (node.told / "threads").read_text() == "5"
    del node.variables["SLURM_CPUS_PER_TASK"]
    node.finish(path)
    assert (node.told / "threads").read_text() == "3"
    assert "--cpus-per-task=3" in node.srun()


def test_own_number_of_threads_wins(node: Node) -> None:
    node.variables["OMP_NUM_THREADS"] = "2"
    node.finish(node.write())
    assert (node.told / "threads").read_text() == "2"
    node.finish(node.write("batch.preamble=['export OMP_NUM_THREADS=7']"))
    assert (node.told / "threads").read_text() == "7"


def test_preamble_runs_in_order_and_with_unset_variables(node: Node) -> None:
    lines = ['export A="$UNSET-$HOME"', 'export OMP_NUM_THREADS="${A:0:1}4"']
    assert node.finish(node.write(_listed(lines)))[0] == 0
    assert (node.told / "threads").read_text() == "-4"


def _listed(lines: list[str]) -> str:
    return (
        "batch.preamble=[" + ", ".join("'" + line.replace("'", "''") + "'" for line in lines) + "]"
    )


def test_a_preamble_that_fails_ends_the_job(node: Node) -> None:
    status, err = node.finish(node.write("batch.preamble=['source missing.sh']"))
    assert status == 1
    assert "missing.sh" in err
    assert not (node.told / "srun").exists()


def test_modules_are_loaded_in_order(node: Node) -> None:
    node.program("module", '#!/bin/bash\nprintf "%s " "$@" >> "$TOLD/module"\n')
    assert node.finish(node.write("batch.modules=[mpich/4.1, cuda]"))[0] == 0
    assert (node.told / "module").read_text() == "load mpich/4.1 load cuda "


@pytest.mark.parametrize("status", [0, 1, 2, 3, 140])
def test_status_is_that_of_the_ranks(node: Node, status: int) -> None:
    node.program("srun", SRUN + f"exit {status}\n")
    assert node.finish(node.write())[0] == status
    assert not (node.told / "scontrol").exists()


def test_component_of_the_coordinator(node: Node) -> None:
    node.variables["SLURM_CPUS_PER_TASK_HET_GROUP_1"] = "6"
    assert node.finish(node.write("batch.heterogeneous=true", "batch.nodes=1")) == (0, "")
    program = [str(START.python), "-m", "psopt", "run", f"{node.run}/batch/job.yaml"]
    program += ["--out", str(node.run)]
    assert node.srun() == [
        *("--export=ALL", "--mpi=pmi2", "--kill-on-bad-exit=1"),
        *("--het-group=0", "--cpus-per-task=6", *program),
        *(":", "--het-group=1", "--cpus-per-task=6", *program),
    ]


class TestWarning:
    def saved(self, node: Node) -> None:
        """Let there be a checkpoint."""
        (node.run / "checkpoints").mkdir()
        (node.run / "checkpoints" / "step-000000000200.h5").touch()

    def warned(self, node: Node, path: Path, times: int = 1) -> tuple[int, str]:
        with node.waiting(path) as process:
            for _ in range(times):
                os.kill(process.pid, signal.SIGUSR2)
                time.sleep(0.3)
            assert process.poll() is None
            (node.told / "go").touch()
            out, _ = process.communicate(timeout=DEADLINE)
        return process.returncode, out

    def test_reaches_the_ranks_and_requeues(self, node: Node) -> None:
        self.saved(node)
        assert self.warned(node, node.write()) == (9, "warned 1\n")
        assert (node.told / "scontrol").read_text() == "requeue 77 "

    def test_twice_does_no_harm(self, node: Node) -> None:
        self.saved(node)
        assert self.warned(node, node.write(), 2) == (9, "warned 1\nwarned 2\n")
        assert (node.told / "scontrol").read_text() == "requeue 77 "

    def test_without_a_checkpoint_there_is_nothing_to_go_on_from(self, node: Node) -> None:
        assert self.warned(node, node.write()) == (9, "warned 1\n")
        assert not (node.told / "scontrol").exists()

    def test_before_the_ranks_are_started(self, node: Node) -> None:
        """The next start would be warned as early: it would go on like that for ever."""
        self.saved(node)
        slow = 'touch "$TOLD/ready"\nwhile [ ! -e "$TOLD/go" ]; do sleep 0.05; done\n'
        node.program("slow", f"#!/bin/bash\n{slow}")
        with node.waiting(node.write("batch.preamble=[slow]")) as process:
            os.kill(process.pid, signal.SIGUSR2)
            (node.told / "go").touch()
            _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 1
        assert "warned before the ranks were started" in err
        assert not (node.told / "srun").exists()
        assert not (node.told / "scontrol").exists()

    def test_whatever_the_preamble_sets(self, node: Node) -> None:
        self.saved(node)
        (node.folder / "site.sh").write_text("trap - USR2\nwarned=1 step=1\n")
        path = node.write("batch.preamble=['source site.sh']")
        assert self.warned(node, path) == (9, "warned 1\n")
        assert (node.told / "scontrol").read_text() == "requeue 77 "

    def test_between_the_start_and_its_number(self, node: Node) -> None:
        """Bash is made to send the warning right before the line that takes the number down."""
        self.saved(node)
        debug = node.folder / "debug.sh"
        debug.write_text(
            "set -T\ntrap 'case $BASH_COMMAND in psopt_step=\\$!) kill -s USR2 $$ ;; esac' DEBUG\n"
        )
        node.program("srun", "#!/bin/bash\nexec sleep 20\n")
        node.variables["BASH_ENV"] = str(debug)
        assert node.finish(node.write())[0] == 128 + signal.SIGUSR2
        assert (node.told / "scontrol").read_text() == "requeue 77 "

    def test_without_requeue(self, node: Node) -> None:
        self.saved(node)
        assert self.warned(node, node.write("batch.requeue=false"))[0] == 9
        assert not (node.told / "scontrol").exists()


HOSTILE_PATHS = [
    "a b",
    "it's",
    'say "x"',
    "(1)",
    "$(touch marker)",
    "`touch marker`",
    "a;touch marker",
    "a&touch marker",
    "a|touch marker",
    "a>marker",
    "<(touch marker)",
    "${IFS}touch",
    "$HOME",
    "*",
    "?",
    "[a]",
    "{a,b}",
    "~",
    "-rf",
    "--out",
    "#x",
    "a #x",
    "!x",
    "%j",
    "100%",
    "é漢",
    "a'\"b",
    "';touch marker;'",
    '";touch marker;"',
    "$((1))",
    "=x",
    "hetjob",
]


@pytest.mark.parametrize("name", HOSTILE_PATHS)
def test_hostile_paths_are_nothing_but_paths(node: Node, name: str) -> None:
    run, python, folder = (node.folder / part / name for part in ("runs", "env", "cwd"))
    folder.mkdir(parents=True)
    node.program("srun", SRUN + 'pwd > "$TOLD/pwd"\n')
    path = node.write(run=run, python=python, folder=folder)
    assert node.finish(path) == (0, "")
    assert node.srun()[4] == str(python)
    assert node.srun()[-3:] == [f"{run}/batch/job.yaml", "--out", str(run)]
    assert (node.told / "pwd").read_text() == f"{folder}\n"
    assert not list(node.folder.rglob("marker"))


def test_signals_of_the_job_are_known_to_bash(node: Node) -> None:
    for name in ("USR1", "USR2", "TERM", "INT", "HUP"):
        path = node.write(f"batch.signal={name}", f"batch.requeue={json.dumps(name != 'TERM')}")
        assert node.finish(path) == (0, "")
