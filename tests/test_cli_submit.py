"""`psopt submit`, with programs of a few lines in the place of sbatch and its kin."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from psopt import job
from psopt.record import BatchFiles, Commands, NotARun, RunDirectory, RunExists, Submission
from tests.commands import call, refused

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "configs" / "lenet5_wasp.yaml"
ACCEPTS = (
    'printf "%s\\0" "$@" > "$(dirname "$0")/../told"; cat > "$(dirname "$0")/../stdin"; echo 123'
)


class Login:
    """A login node: programs on PATH, and the directory in which a job is submitted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        shutil.copy(CONFIG, folder / "job.yaml")

    def program(self, name: str, body: str = ACCEPTS) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def told(self) -> list[str]:
        """The words that the batch system got."""
        return (self.folder / "told").read_text().split("\0")[:-1]

    def files(self) -> list[str]:
        """What there is beside the programs and what they note."""
        others = {"bin", "told", "stdin", "job.yaml"}
        return sorted(path.name for path in self.folder.iterdir() if path.name not in others)


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.chdir(tmp_path)
    made = Login(tmp_path)
    made.program("mpirun", "echo HYDRA")
    return made


def test_a_job_is_submitted(login: Login) -> None:
    login.program("sbatch")
    status, out, err = call(
        "submit",
        "job.yaml",
        "--out",
        "r",
        "--site",
        "slurm",
        "--set",
        "batch.time=1h",
        "--",
        "-p",
        "a b",
    )
    run = login.folder / "r"
    files = BatchFiles(run)
    assert (status, out) == (0, "123\n")
    assert err == f"psopt: job 123 (slurm), run directory: {run}\n"
    assert login.told() == ["--parsable", "-p", "a b", str(files.script)]
    assert sorted(path.name for path in run.iterdir()) == ["batch", "batch.json"]
    assert sorted(path.name for path in files.directory.iterdir()) == ["job.sh", "job.yaml"]
    text = files.script.read_bytes()
    assert text.startswith(b"#!/bin/bash\n#SBATCH --job-name=lenet5-wasp\n")
    assert b"\r" not in text
    assert stat.S_IMODE(files.script.stat().st_mode) == 0o755
    assert f"#SBATCH --output={files.directory}/%j.log\n".encode() in text
    assert f"\ncd {login.folder}\n".encode() in text
    assert f"  {Path(sys.executable).absolute()} -m psopt run ".encode() in text


def test_the_job_is_kept_as_it_was(login: Login) -> None:
    login.program("sbatch")
    changes = ["batch.site=slurm", "train.epochs=3"]
    assert call("submit", "job.yaml", "--out", "r", *(f"--set={text}" for text in changes))[0] == 0
    expected = job.load(login.folder / "job.yaml", changes)
    (login.folder / "job.yaml").write_text("name: other\n")
    assert job.load(BatchFiles(login.folder / "r").job) == expected


def test_the_submission_is_recorded(login: Login) -> None:
    login.program("sbatch", ACCEPTS.replace("123", "'123;north'"))
    status, out, err = call(
        "submit", "job.yaml", "--out", "r", "--set", "batch.commands.queue=myqueue"
    )
    assert (status, out) == (0, "123\n")
    assert "job 123 (slurm, cluster north)" in err
    run = login.folder / "r"
    found = Submission.read(run)
    assert found is not None
    script = str(BatchFiles(run).script)
    assert (found.job, found.cluster, found.site, found.script) == ("123", "north", "slurm", script)
    assert found.commands == Commands("sbatch", "srun", "myqueue", "scancel", "sacct", "scontrol")
    assert found.command == ("sbatch", "--parsable", script)
    assert found.submitted.endswith("+00:00")
    found.write(run)
    assert Submission.read(run) == found


def test_the_run_directory_is_new_for_the_job(login: Login) -> None:
    """The job that starts finds a directory that is not empty, and takes it all the same."""
    login.program("sbatch")
    call("submit", "job.yaml", "--out", "r")
    (login.folder / "r" / ".batch.json.4711.tmp").touch()
    run = RunDirectory.create(login.folder / "r", "x", allowed=BatchFiles.PATTERNS)
    run.check_new()
    (login.folder / "r" / "other").touch()
    with pytest.raises(RunExists, match="holds 'other'"):
        RunDirectory.create(login.folder / "r", "x", allowed=BatchFiles.PATTERNS)


@pytest.mark.parametrize(
    "answer",
    [
        "echo 123",
        "echo '123;north'",
        "echo Submitted batch job 123",
        "echo Submitted batch job 123 on cluster north",
        "echo 'sbatch: warning: old option 7' >&2; echo 123",
        "echo Submitted batch job 123 >&2",
    ],
)
def test_the_number_alone_is_printed(login: Login, answer: str) -> None:
    login.program("sbatch", answer)
    status, out, err = call("submit", "job.yaml", "--out", "r")
    assert (status, out) == (0, "123\n")
    assert "job 123 (slurm" in err
    assert ("old option 7" in err) == ("warning" in answer)


def test_an_answer_without_a_number(login: Login) -> None:
    login.program("sbatch", "echo thanks")
    status, out, err = call("submit", "job.yaml", "--out", "r")
    assert (status, out) == (1, "")
    assert "its answer has no number: 'thanks'; look for lenet5-wasp in squeue" in err
    assert BatchFiles(login.folder / "r").script.exists()


@pytest.mark.parametrize("made_before", [False, True])
def test_a_rejection(login: Login, made_before: bool) -> None:
    login.program("sbatch", "echo 'sbatch: error: invalid partition specified: x' >&2; exit 1")
    if made_before:
        (login.folder / "r").mkdir()
    status, out, err = call("submit", "job.yaml", "--out", "r")
    assert (status, out) == (1, "")
    assert "the job was not taken: sbatch ended with status 1" in err
    assert "sbatch: error: invalid partition specified: x" in err
    assert login.files() == (["r"] if made_before else [])
    login.program("sbatch")
    assert call("submit", "job.yaml", "--out", "r")[0] == 0


def test_yhbatch(login: Login) -> None:
    login.program("yhbatch", ACCEPTS.replace("echo 123", "echo Submitted batch job 123"))
    error = refused("submit", "job.yaml", "--out", "r")
    assert error == (
        "--set batch.site=tianhe2: batch: tianhe2 wants a partition from every job: set 'partition', or "
        "--set batch.partition=...\n"
    )
    status, out, _ = call("submit", "job.yaml", "--out", "r", "--set", "batch.partition=work")
    assert (status, out) == (0, "123\n")
    assert login.told() == [str(BatchFiles(login.folder / "r").script)]
    text = BatchFiles(login.folder / "r").script.read_text()
    assert "#SBATCH --partition=work\n" in text
    assert "\nmodule load mpich\n" in text
    assert "\n  yhrun --export=ALL --mpi=pmi2 " in text


def test_dry_run(login: Login) -> None:
    status, out, err = call(
        "submit", "job.yaml", "--site", "slurm", "--out", "a b", "--dry-run", "--", "--exclusive"
    )
    script = f"{login.folder}/a b/batch/job.sh"
    assert status == 0
    assert out.startswith("#!/bin/bash\n")
    assert out.endswith('exit "$status"\n')
    assert err == f"psopt: sbatch --parsable --exclusive '{script}'\n"
    assert login.files() == []
    assert shlex.split(err)[-1] == script


def test_test_only(login: Login) -> None:
    login.program("sbatch", ACCEPTS.replace("echo 123", "echo sbatch: Job 7 to start at noon >&2"))
    status, out, err = call("submit", "job.yaml", "--test-only")
    assert (status, out) == (0, "")
    assert err == "sbatch: Job 7 to start at noon\n"
    assert login.told() == ["--parsable", "--test-only"]
    assert (login.folder / "stdin").read_text().startswith("#!/bin/bash\n")
    assert login.files() == []
    login.program("sbatch", "echo no >&2; exit 3")
    status, out, err = call("submit", "job.yaml", "--test-only")
    assert (status, out) == (1, "")
    assert err.endswith("said:\nno\n")


def test_own_way_to_start_mpi(login: Login) -> None:
    for mpi in ("pmix", "pmi2"):
        out = call("submit", "job.yaml", "--site=slurm", "--dry-run", f"--set=batch.mpi={mpi}")[1]
        assert f"srun --export=ALL --mpi={mpi} " in out


def test_what_will_be_missed_is_said(login: Login) -> None:
    login.program("sbatch")
    without = ("--set", "checkpoint.every_steps=null")
    said = "psopt: checkpoint.every_steps is not set, so a job that is requeued begins anew\n"
    for more, is_said in (
        (without, True),
        ((), False),
        ((*without, "--set=batch.requeue=false"), False),
    ):
        status, _, err = call("submit", "job.yaml", "--dry-run", *more)
        assert status == 0, err
        assert (said in err) == is_said


def test_own_command(login: Login) -> None:
    login.program("mybatch")
    login.program("sbatch", "exit 9")
    path = f"{login.bin}/mybatch"
    assert call("submit", "job.yaml", "--out=r", "--set", f"batch.commands.submit={path}")[:2] == (
        0,
        "123\n",
    )


class TestRefused:
    def test_no_batch_system(self, login: Login) -> None:
        login.bin.joinpath("mpirun").unlink()
        os.environ["PATH"] = str(login.bin)
        assert "no batch system is on PATH" in refused("submit", "job.yaml")
        assert "cannot execute sbatch" in refused("submit", "job.yaml", "--site", "slurm")
        assert login.files() in ([], ["runs"])

    def test_site(self, login: Login) -> None:
        error = refused("submit", "job.yaml", "--site", "north")
        assert error == (
            "--set batch.site=north: batch.site: there is no site 'north': use one of slurm, tianhe2, tianhexy\n"
        )

    def test_section(self, login: Login) -> None:
        with (login.folder / "job.yaml").open("a") as file:
            file.write("batch:\n  nodes: 4\n  partition: a b\n")
        error = refused("submit", "job.yaml", "--site", "slurm")
        assert "job.yaml:13:14: batch.partition: 'a b' is not a partition" in error

    def test_flag(self, login: Login) -> None:
        assert "'other.sh' is no option" in refused("submit", "job.yaml", "--", "other.sh")

    def test_directory_of_another_run(self, login: Login) -> None:
        login.program("sbatch")
        assert call("submit", "job.yaml", "--out", "r")[0] == 0
        before = BatchFiles(login.folder / "r").script.read_bytes()
        assert "is not empty (it holds 'batch')" in refused("submit", "job.yaml", "--out", "r")
        assert BatchFiles(login.folder / "r").script.read_bytes() == before

    def test_directory_that_no_script_can_hold(self, login: Login) -> None:
        login.program("sbatch")
        for name in ("a\nb", "a\\b"):
            assert "use a" in refused("submit", "job.yaml", "--out", name)
        assert login.files() == []

    @pytest.mark.parametrize(
        "name", ["a b", "a'b", 'a"b', "a\nb", "a|b", "a-hetjob", "$(touch x)", "-x", ""]
    )
    def test_name(self, login: Login, name: str) -> None:
        login.program("sbatch")
        text = (login.folder / "job.yaml").read_text()
        named = text.replace("name: lenet5-wasp", f"name: {json.dumps(name)}")
        (login.folder / "job.yaml").write_text(named)
        assert refused("submit", "job.yaml").startswith("job.yaml:2:7: ")
        assert login.files() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "is no record of a submission"),
        ('{"job": "1"}', "is no record of a submission"),
        (None, "is no record of a submission"),
    ],
)
def test_a_record_that_is_none(login: Login, change: str | None, said: str) -> None:
    login.program("sbatch")
    call("submit", "job.yaml", "--out", "r")
    path = BatchFiles(login.folder / "r").submission
    values = json.loads(path.read_text())
    path.write_text(change or json.dumps(values | {"job": 123}))
    with pytest.raises(NotARun, match=rf"batch\.json: {said}"):
        Submission.read(login.folder / "r")


def test_a_run_that_was_not_submitted(tmp_path: Path) -> None:
    assert Submission.read(tmp_path) is None


def test_twenty_at_once_have_twenty_run_directories(login: Login) -> None:
    login.program("sbatch", "echo 123")
    code = (
        "import os, sys; from psopt.launch.submit import *; from psopt.launch.site import sites; "
        "from psopt import job; from pathlib import Path; "
        "c = job.load(Path('job.yaml')); "
        "o = Order(c, sites()['slurm'], Path('/python'), Path.cwd(), 'pmi2'); "
        "[submit(o, None) for _ in range(5)]"
    )

    def one(_: int) -> int:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(one, range(4))] == [0] * 4
    runs = [*(login.folder / "runs").iterdir()]
    assert len(runs) == 20
    for run in runs:
        assert f"\nrun={run}\n" in BatchFiles(run).script.read_text()
        assert Submission.read(run) is not None
