"""`psopt resume` and `psopt cancel`, with small programs in the place of Slurm's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from psopt.record import (
    BatchFiles,
    RunDirectory,
    Submission,
    SweepDirectory,
    SweepEntry,
    SweepRecord,
    read_metrics,
)
from tests.commands import call, no_rank, refused
from tests.login import DEADLINE, Login, going_on, login
from tests.training import psopt

__all__ = ["login", "no_rank"]


class TestResume:
    @pytest.mark.parametrize("unknown", [True, False])
    def test_a_batch_job_is_submitted_anew(self, login: Login, unknown: bool) -> None:
        """The number alone is on standard output, and on record."""
        if not unknown:
            login.queue()
        before = Submission.read(login.run)
        status, out, err = call("resume", login.run)
        assert (status, out) == (0, "14\n")
        assert err == f"psopt: job 14 (slurm), run directory: {login.run}\n"
        script = BatchFiles(login.run).script
        assert login.says("submit").split("\0")[:-1] == ["--parsable", "--exclusive", str(script)]
        assert login.says("queue").count("\n") == 1
        now = Submission.read(login.run)
        assert before is not None
        assert now is not None
        assert (now.job, now.submitted != before.submitted) == ("14", True)
        assert (now.command, now.commands) == (before.command, before.commands)

    def test_a_failed_run(self, login: Login) -> None:
        RunDirectory(login.run).write_summary({"status": "failed", "reason": "x"})
        assert call("resume", login.run)[:2] == (0, "14\n")

    def refused(self, login: Login, *options: object) -> str:
        before = BatchFiles(login.run).submission.read_bytes()
        error = refused("resume", login.run, *options)
        assert login.says("submit") == ""
        assert BatchFiles(login.run).submission.read_bytes() == before
        return error

    def test_complete(self, login: Login) -> None:
        RunDirectory(login.run).write_summary({"status": "completed", "reason": "epochs"})
        assert self.refused(login) == f"{login.run}: the run is complete\n"

    @pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING"])
    def test_in_the_queue(self, login: Login, state: str) -> None:
        login.queue("CLUSTER: x", f"  12+0|{state}|Priority  ", "13|PENDING|Priority")
        said = "waits (Priority)" if state == "PENDING" else state.lower()
        assert f"its job 12 is still in the queue: {said}; wait" in self.refused(login)

    def test_held(self, login: Login) -> None:
        hold = RunDirectory(login.run).hold()
        assert "another process runs in it" in self.refused(login)
        hold.release()
        assert call("resume", login.run)[0] == 0

    def test_moved(self, login: Login, tmp_path: Path) -> None:
        login.run.rename(tmp_path / "elsewhere")
        login.run = tmp_path / "elsewhere"
        assert "move the directory back" in self.refused(login)
        login.submitted(tmp_path / "run")  # another one, at its old place
        assert "move the directory back" in self.refused(login)

    def test_one_of_an_array(self, login: Login) -> None:
        shutil.rmtree(login.run)
        login.submitted(login.run, "12_3")
        assert "its job 12_3 is one of an array; `psopt sweep`" in self.refused(login)

    def test_ranks(self, login: Login) -> None:
        assert "leave out -n" in self.refused(login, "-n", 3)

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ("echo 'no such partition' >&2; exit 1", "sbatch ended with status 1 and said:\nno su"),
            ("echo thanks", "its answer has no number: 'thanks'; look for it in squeue"),
        ],
    )
    def test_not_taken(self, login: Login, body: str, said: str) -> None:
        login.program("sbatch", body)
        before = BatchFiles(login.run).submission.read_bytes()
        status, out, err = call("resume", login.run)
        assert (status, out) == (1, "")
        assert said in err
        assert BatchFiles(login.run).submission.read_bytes() == before

    def test_no_run(self, login: Login, tmp_path: Path) -> None:
        assert "no such directory" in refused("resume", tmp_path / "none")
        assert "not a run directory" in refused("resume", login.bin)
        (tmp_path / "sweep.json").touch()
        assert "is a sweep; `psopt sweep` goes on" in refused("resume", tmp_path)

    def test_a_run_on_the_virtual_cluster(self, tmp_path: Path) -> None:
        with going_on(tmp_path) as (run, process):
            assert "another process runs in it" in refused("resume", run)
            assert call("cancel", run)[0] == 0
            process.communicate(timeout=DEADLINE)
        config = run / "config.yaml"
        config.write_text(config.read_text().replace("100000", "3"))
        done = psopt("resume", run)
        assert done.returncode == 0, done.stderr
        assert "completed (epochs)" in done.stdout
        assert len(read_metrics(run / "attempts.jsonl")) == 2


class TestCancel:
    @pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
    def test_a_batch_job(self, login: Login, state: str) -> None:
        login.queue(f"12|{state}|None")
        said = "waits (None)" if state == "PENDING" else state.lower()
        assert call("cancel", login.run) == (0, f"cancelled: job 12 ({said})\n", "")
        assert login.says("cancel") == "12 \n"

    def test_on_its_cluster(self, login: Login) -> None:
        shutil.rmtree(login.run)
        login.submitted(login.run, "12", "north")
        login.queue("CLUSTER: north", "12|PENDING|Priority")
        assert call("cancel", login.run)[0] == 0
        assert login.says("queue").startswith("--clusters=north --noheader --array ")
        assert login.says("cancel") == "--clusters=north 12 \n"

    def test_not_in_the_queue(self, login: Login) -> None:
        login.queue("13|PENDING|Priority")
        said = f"{login.run}: nothing runs there; job 12: the batch system does not know it\n"
        assert call("cancel", login.run) == (1, "", said)
        (login.told / "states").unlink()
        status, _, err = call("cancel", login.run)
        assert status == 1
        assert err.endswith("nothing runs there; job 12: squeue gives no answer\n")
        assert login.says("cancel") == ""

    def test_refused_by_the_batch_system(self, login: Login) -> None:
        login.queue("12|RUNNING|None")
        login.program("scancel", "echo 'not yours' >&2; exit 1")
        status, out, err = call("cancel", login.run)
        assert (status, out) == (1, "")
        assert err == ("nothing was cancelled: scancel ended with status 1 and said:\nnot yours\n")

    def test_a_run_here_saves_and_stops(self, tmp_path: Path) -> None:
        with going_on(tmp_path) as (run, process):
            status, out, _ = call("cancel", run)
            assert (status, out) == (
                0,
                f"cancelled: process {process.pid}, which saves a checkpoint first\n",
            )
            said, _ = process.communicate(timeout=DEADLINE)
            assert process.returncode == 75, said
        summary = RunDirectory(run).read_summary()
        assert summary is not None
        assert (summary["status"], summary["reason"]) == ("stopped", "SIGTERM")
        assert call("cancel", run) == (1, "", f"{run}: nothing runs there\n")

    def test_a_run_on_another_host(self, login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("psopt.launch.life.holder", lambda run: None)
        (login.run / "environment.json").write_text('{"hostname": "n7"}')
        hold = RunDirectory(login.run).hold()
        status, _, err = call("cancel", login.run)
        hold.release()
        assert status == 1
        assert "no process here holds it; one on n7 may, so cancel it there; job 12: " in err

    def test_a_sweep(self, login: Login, tmp_path: Path) -> None:
        """In as few calls as may be: those that wait or run, and are not done."""
        sweep = SweepDirectory(tmp_path / "sweep")
        ids = [f"{number:012x}" for number in range(1203)]
        sweep.write(SweepRecord("x", (), tuple(SweepEntry(run, {}) for run in ids), {}))
        for number, run in enumerate(ids[:-1]):
            login.submitted(sweep.run_path(run), f"7_{number}")
        login.queue(*(f"7_{number}|PENDING|Priority" for number in range(1201)))
        RunDirectory(sweep.run_path(ids[0])).write_summary({"status": "completed"})
        BatchFiles(sweep.run_path(ids[1])).submission.write_text("{")
        status, out, err = call("cancel", sweep.path)
        assert (status, out.count("\n")) == (0, 1199)
        path = sweep.run_path(ids[2])
        assert out.startswith(f"cancelled: job 7_2 (waits (Priority)): {path}\n")
        assert "batch.json: not valid JSON" in err
        calls = login.says("cancel").splitlines()
        assert [len(line.split()) for line in calls] == [500, 500, 199]
        assert " ".join(calls).split() == [f"7_{number}" for number in range(2, 1201)]
        assert login.says("queue").count("\n") == 1

    def test_a_sweep_without_jobs(self, login: Login, tmp_path: Path) -> None:
        sweep = SweepDirectory(tmp_path / "sweep")
        sweep.write(SweepRecord("x", (), (SweepEntry("0" * 12, {}),), {}))
        said = f"{sweep.path}: none of its runs has a job in the queue\n"
        assert call("cancel", sweep.path) == (1, "", said)
        login.submitted(sweep.run_path("0" * 12))
        assert call("cancel", sweep.path)[0] == 1
        assert login.says("cancel") == ""

    def test_no_run(self, tmp_path: Path) -> None:
        assert "no such directory" in refused("cancel", tmp_path / "none")
        assert "not a run directory" in refused("cancel", tmp_path)
