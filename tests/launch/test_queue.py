"""What is made of the answers of a batch system; shell scripts stand in for its commands."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from psopt.launch.queue import look, most_tasks, standings
from psopt.launch.site import sites
from psopt.record import Commands, Phase, RunDirectory, Standing, State, Submission

Program = Callable[[str, str], Path]
SILENT = "echo 'not configured' >&2; exit 1"


@pytest.fixture
def commands(fake_program: Program, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A batch system that answers nothing until a test says what."""
    for name in ("squeue", "sacct", "scontrol"):
        path = fake_program(name, SILENT)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    return sites()["slurm"].commands


def submission(commands: Commands, job: str, cluster: str | None = None) -> Submission:
    return Submission(
        job, cluster, "slurm", commands, "2026-01-01T00:00:00+00:00", "/job.sh", ("sbatch",)
    )


def run(folder: Path, given: Submission, summary: dict[str, str] | None = None) -> Path:
    """A run directory of a job that was submitted."""
    made = RunDirectory.create(folder, "job")
    given.write(made.path)
    if summary:
        made.write_config("name: job\n")
        made.write_summary(summary)
    return made.path


@pytest.mark.parametrize(
    ("line", "phase", "said"),
    [
        ("7|PENDING|Priority", Phase.WAITING, "waits (Priority)"),
        ("7|PENDING|BeginTime", Phase.WAITING, "waits (BeginTime)"),
        ("7+0|PENDING|Resources", Phase.WAITING, "waits (Resources)"),
        ("7|PENDING|DependencyNeverSatisfied", Phase.STUCK, "has failed; cancel it"),
        ("7|PENDING|launch failed requeued held", Phase.STUCK, "could not start it"),
        ("7|PENDING|launch_failed_requeued_held", Phase.STUCK, "could not start it"),
        ("7|REQUEUE_HOLD|JobHeldUser", Phase.STUCK, "release it"),
        ("7|RUNNING|None", Phase.RUNNING, "running"),
        ("7|COMPLETING|None", Phase.RUNNING, "completing"),
        ("7|SUSPENDED|None", Phase.RUNNING, "suspended"),
        ("7|NEW_WORD|None", Phase.FORGOTTEN, "in a state unknown to psopt (NEW_WORD)"),
        ("77|RUNNING|None", Phase.FORGOTTEN, "does not know it"),
        ("7_1|RUNNING|None", Phase.FORGOTTEN, "does not know it"),
        ("a warning about the site", Phase.FORGOTTEN, "does not know it"),
    ],
)
def test_in_the_queue(
    commands: Commands, fake_program: Program, line: str, phase: Phase, said: str
) -> None:
    fake_program("squeue", f"echo '{line}'")
    (seen,) = look([submission(commands, "7")])
    assert (seen.job, seen.phase) == ("7", phase)
    assert said in seen.reason


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("TIMEOUT", "0:0", "its time limit came (batch.time) (TIMEOUT)"),
        ("CANCELLED by 1000", "0:15", "it was cancelled (CANCELLED)"),
        ("NODE_FAIL", "1:0", "a node failed (NODE_FAIL)"),
        ("OUT_OF_MEMORY", "0:125", "it wanted more memory than it had"),
        ("FAILED", "127:0", "was not found (status 127) (FAILED)"),
        ("FAILED", "9:0", "its script ended with status 9 (FAILED)"),
        ("COMPLETED", "0:0", "it ended with status 0, but its run did not"),
    ],
)
def test_in_the_accounts(
    commands: Commands, fake_program: Program, state: str, code: str, said: str
) -> None:
    fake_program("sacct", f"echo '7_3|{state}|{code}'; echo '7_4|RUNNING|0:0'")
    (seen,) = look([submission(commands, "7_3")])
    assert seen.phase is Phase.ENDED
    assert said in seen.reason


def test_in_the_memory_of_the_controller(commands: Commands, fake_program: Program) -> None:
    """An array's tasks come in one answer; those that wait are one line."""
    fake_program(
        "scontrol",
        """[ "$4" = 7 ] || exit 1
echo "JobId=9 ArrayJobId=7 ArrayTaskId=0 JobName=a b=c JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0"
echo "JobId=8 ArrayJobId=7 ArrayTaskId=1 JobState=COMPLETED Reason=None ExitCode=0:0"
echo "JobId=7 ArrayJobId=7 ArrayTaskId=2-9%2 JobState=PENDING Reason=JobArrayTaskLimit\"""",
    )
    first, second, third = look([submission(commands, f"7_{task}") for task in (0, 1, 2)])
    assert (first.phase, "status 3" in first.reason) == (Phase.ENDED, True)
    assert second.phase is Phase.ENDED
    assert third.phase is Phase.FORGOTTEN


def test_one_question_for_many_jobs(
    commands: Commands, fake_program: Program, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    fake_program(
        "squeue", f'echo x >>{asked}; for n in $(seq 500); do echo "7_$n|RUNNING|None"; done'
    )
    jobs = [submission(commands, f"7_{number}") for number in range(1, 501)]
    assert {seen.phase for seen in look(jobs)} == {Phase.RUNNING}
    assert asked.read_text() == "x\n"
    assert look([]) == []


def test_two_clusters(commands: Commands, fake_program: Program) -> None:
    fake_program(
        "squeue", "[ $1 = --clusters=north ] && echo '7|RUNNING|None' || echo '7|PENDING|Priority'"
    )
    phases = [
        seen.phase
        for seen in look([submission(commands, "7", c) for c in ("north", "south", None)])
    ]
    assert phases == [Phase.RUNNING, Phase.WAITING, Phase.WAITING]


def test_commands_that_are_gone(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (seen,) = look([submission(commands, "7")])
    assert (seen.phase, seen.reason) == (Phase.FORGOTTEN, "squeue gives no answer")
    assert most_tasks(commands) == 1001


@pytest.mark.parametrize("field", ["queue", "account", "control"])
@pytest.mark.parametrize("name", ["evil", "squeue", "../squeue"])
def test_a_file_cannot_name_a_program(
    commands: Commands, tmp_path: Path, field: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that somebody has put there, whatever it is called; not even by way of a relative path."""
    folder = tmp_path / "evil" / "bin"
    folder.mkdir(parents=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o777)
    monkeypatch.chdir(folder)
    for given in (str(program), f"./{name}"):
        strange = dataclasses.replace(commands, **{field: given})
        (seen,) = look([submission(strange, "7")])
        assert seen.phase is Phase.FORGOTTEN
        assert "in its batch.json is no command of a batch system, and is not run" in seen.reason
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("said", "most"), [("MaxArraySize            = 11", 11), ("else", 1001)])
def test_size_of_arrays(commands: Commands, fake_program: Program, said: str, most: int) -> None:
    fake_program("scontrol", f"echo 'MaxMemPerNode = 5'; echo '{said}'")
    assert most_tasks(commands) == most


class TestStandings:
    """The run's own record comes first."""

    def test_done_asks_nobody(
        self, commands: Commands, fake_program: Program, tmp_path: Path
    ) -> None:
        fake_program("squeue", f"touch {tmp_path}/asked; echo '7|RUNNING|None'")
        path = run(tmp_path / "run", submission(commands, "7"), {"status": "completed"})
        assert [each.state for each in standings([path])] == [State.DONE]
        assert not (tmp_path / "asked").exists()

    @pytest.mark.parametrize(
        ("line", "state"),
        [
            ("7|PENDING|BeginTime", State.QUEUED),
            ("7|RUNNING|None", State.RUNNING),
            ("7|PENDING|JobHeldUser", State.BLOCKED),
            ("", State.FAILED),
        ],
    )
    def test_a_failure_that_goes_on(
        self, commands: Commands, fake_program: Program, tmp_path: Path, line: str, state: State
    ) -> None:
        fake_program("squeue", f"echo '{line}'")
        path = run(
            tmp_path / "run", submission(commands, "7"), {"status": "failed", "reason": "it was so"}
        )
        (found,) = standings([path])
        assert found.state is state
        assert ("it was so" in found.reason) is (state is State.FAILED)

    def test_stopped_and_nobody_goes_on(
        self, commands: Commands, fake_program: Program, tmp_path: Path
    ) -> None:
        path = run(
            tmp_path / "run", submission(commands, "7"), {"status": "stopped", "reason": "SIGTERM"}
        )
        assert [each.state for each in standings([path])] == [State.MISSING]  # nobody knows the job
        fake_program("sacct", "echo '7|CANCELLED by 0|0:15'")
        said = "job 7: it was cancelled (CANCELLED): stopped by SIGTERM, with a checkpoint"
        (found,) = standings([path])
        assert (found.state, found.reason) == (State.FAILED, said)

    def test_a_start_that_failed_has_its_words(
        self, commands: Commands, fake_program: Program, tmp_path: Path
    ) -> None:
        path = run(tmp_path / "run", submission(commands, "7"))
        assert [each.state for each in standings([path])] == [State.UNKNOWN]
        fake_program("sacct", "echo '7|FAILED|127:0'")
        (path / "output.log").write_text("one\nline 9: module: command not found\n\n")
        (found,) = standings([path])
        assert found.state is State.FAILED
        assert found.reason.endswith("line 9: module: command not found")

    def test_a_damaged_record_of_the_submission(self, tmp_path: Path) -> None:
        path = RunDirectory.create(tmp_path / "run", "job").path
        (path / "batch.json").write_text(json.dumps({"job": "7"}))
        assert standings([path]) == [Standing(State.MISSING, "not started", {})]
