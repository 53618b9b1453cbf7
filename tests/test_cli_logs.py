"""`psopt logs`: the last words of a run, and those that come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from psopt.record import BatchFiles
from tests.commands import call, no_rank, refused
from tests.login import DEADLINE, Login, going_on, login
from tests.training import ROOT, job_file, tiny

__all__ = ["login", "no_rank"]


class TestLogs:
    def test_of_all_jobs_of_a_run(self, login: Login) -> None:
        files = BatchFiles(login.run)
        assert call("logs", login.run) == (
            1,
            "",
            f"{login.run}: has no log yet; --follow waits for it\n",
        )
        (files.directory / "12.log").write_text("a\nb\n")
        (files.directory / "14.log").write_text("c\td\x1b[2J\n")
        assert call("logs", login.run) == (0, "a\nb\nc\td\\x1b[2J\n", "")
        assert call("logs", login.run, "--lines", 2) == (0, "b\nc\td\\x1b[2J\n", "")

    def test_twenty_lines(self, login: Login) -> None:
        lines = [f"{number}\n" for number in range(100)]
        (BatchFiles(login.run).directory / "12.log").write_text("".join(lines))
        assert call("logs", login.run)[1] == "".join(lines[-20:])

    def test_of_a_run_that_has_ended(self, tmp_path: Path) -> None:
        run = tmp_path / "run"
        path = job_file(tmp_path, tiny(tmp_path))
        assert call("run", path, "--simulate", "--out", run)[0] == 0
        for options in ([], ["--follow"]):
            status, out, _ = call("logs", run, *options)
            assert status == 0
            assert out == (run / "log.txt").read_text()

    def test_follow_a_run_to_its_end(self, tmp_path: Path) -> None:
        with going_on(tmp_path) as (run, process):
            words = [sys.executable, "-m", "psopt", "logs", str(run), "--lines=0", "--follow"]
            with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as logs:
                assert logs.stdout is not None
                assert logs.stdout.readline()
                process.send_signal(signal.SIGTERM)
                *_, last = logs.stdout
                assert logs.wait() == 0
                process.communicate(timeout=DEADLINE)
        assert last.startswith("stopped (SIGTERM): ")

    def test_follow_a_job_from_the_queue(self, login: Login) -> None:
        """It has said nothing yet; Ctrl-C ends the looking."""
        login.queue("12|PENDING|Priority")
        words = [sys.executable, "-m", "psopt", "logs", str(login.run), "--follow"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as logs:
            assert logs.stdout is not None
            while not login.says("queue"):
                assert logs.poll() is None
                time.sleep(0.05)
            (BatchFiles(login.run).directory / "12.log").write_text("hello\n")
            assert logs.stdout.readline() == "hello\n"
            logs.send_signal(signal.SIGINT)
            assert logs.wait(DEADLINE) == 0

    def test_of_a_sweep(self, tmp_path: Path) -> None:
        (tmp_path / "sweep.json").write_text(json.dumps({}))
        said = f"is a sweep; `psopt status {tmp_path}` has the log of each run"
        assert said in refused("logs", tmp_path)

    def test_no_run(self, tmp_path: Path) -> None:
        assert "no such directory" in refused("logs", tmp_path / "none")
        assert "not a run directory" in refused("logs", tmp_path)
