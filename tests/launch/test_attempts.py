"""What an attempt's end means: the status, the words, and whether there is another attempt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from psopt.obituary import obituary
from tests.launch.launching import Program, launch, started

RESTART: dict[str, Any] = {"on_loss": "restart"}


def killed(rank: int, code: int = -9, *, fatal: bool = True) -> str:
    """What a supervisor says."""
    return f'echo "{obituary(str(rank), 123, code, fatal=fatal)}" >&2'


def ends(program: Path, **cluster: Any) -> tuple[int, str, str]:
    """Status, output and errors of a job."""
    process = launch(program, "first", cluster=json.dumps(cluster))
    out, err = process.communicate(timeout=60)
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory."""
    path = tmp_path / "it's a run"
    path.mkdir()
    (path / "config.yaml").write_text("name: a\n")
    return path


def named(run: Path) -> str:
    return f'echo "run directory: {run}"'


def told(run: Path) -> str:
    quoted = "'" + str(run).replace("'", "'\"'\"'") + "'"
    return f"psopt: the run is kept in {run}; go on with: psopt run --resume {quoted}\n"


@pytest.mark.parametrize("of_mpirun", [0, 1, 9, 137])
@pytest.mark.parametrize(
    ("summary", "status"), [("completed", 0), ("failed", 1), ("diverged", 3), (None, None)]
)
def test_the_record_decides(
    fake_program: Program, run: Path, of_mpirun: int, summary: str | None, status: int | None
) -> None:
    """And where nothing is recorded the job has not come to its end, whatever mpirun says."""
    if summary is not None:
        (run / "summary.json").write_text(json.dumps({"status": summary}))
    code, _, err = ends(started(fake_program, f"{named(run)}\nexit {of_mpirun}"))
    assert code == ((137 if of_mpirun == 137 else 1) if status is None else status)
    assert err == ("" if summary in ("completed", "diverged") else told(run))


def test_an_earlier_record_does_not(fake_program: Program, run: Path) -> None:
    """Ranks that were refused before they came to a run directory."""
    (run / "summary.json").write_text('{"status": "completed"}')
    assert ends(started(fake_program, "exit 2"))[0] == 2


@pytest.mark.parametrize("died", [True, False])
def test_survived_losses(fake_program: Program, run: Path, died: bool) -> None:
    """A worker that the job outlived, or that died when all was done, takes nothing away."""
    (run / "summary.json").write_text('{"status": "completed"}')
    body = f"{named(run)}\n{killed(2, fatal=died)}\nexit 137"
    assert ends(started(fake_program, body), **RESTART)[0] == 0


@pytest.mark.parametrize(("code", "status"), [(-9, 137), (-11, 139), (0, 1), (5, 1)])
def test_a_loss_that_ends_the_job(fake_program: Program, run: Path, code: int, status: int) -> None:
    found, _, err = ends(started(fake_program, f"{named(run)}\n{killed(2, code)}\nexit 9"))
    assert (found, "restart" in err) == (status, False)
    assert err.endswith(told(run))


def again(run: Path, first: str, later: str) -> str:
    """A job of two kinds of attempts."""
    return (
        f'case "$*" in *first) {named(run)}; {first};; *) {named(run)}; echo "$*"; {later};; esac'
    )


def complete(run: Path) -> str:
    summary = json.dumps({"status": "completed"})
    return f"""echo '{summary}' >"{run}/summary.json\""""


@pytest.mark.parametrize(
    ("deaths", "ranks", "words"),
    [
        ([2], 3, "worker 1"),
        ([3, 1], 2, "worker 0, worker 2"),
        ([0], 4, "coordinator"),
        ([0, 1], 3, "coordinator, worker 0"),
        ([], 4, "a rank and its supervisor"),
    ],
)
def test_a_restart(
    fake_program: Program, run: Path, deaths: list[int], ranks: int, words: str
) -> None:
    """On the ranks that are left, and a coordinator."""
    first = "; ".join([*map(killed, deaths), "exit 9"])
    program = started(fake_program, again(run, first, complete(run)))
    status, out, err = ends(program, **RESTART)
    lost = "".join(f" {rank}" for rank in sorted(deaths))
    assert f"-n {ranks} " in out
    assert f"again {run}{lost}\n" in out
    assert f"psopt: lost: {words}; restart 1 of 3, {ranks} ranks\n" in err
    assert status == 0


@pytest.mark.parametrize(
    ("cluster", "restarts", "problem"),
    [
        ({"min_workers": 2}, 1, "workers left: 1, cluster.min_workers is 2"),
        ({"max_restarts": 1}, 1, "restarts so far: 1, cluster.max_restarts is 1"),
        ({"max_restarts": 0}, 0, "restarts so far: 0, cluster.max_restarts is 0"),
        ({}, 2, "workers left: 0, cluster.min_workers is 1"),
    ],
)
def test_an_end_of_restarts(
    fake_program: Program, run: Path, cluster: dict[str, Any], restarts: int, problem: str
) -> None:
    """One worker dies in each attempt."""
    program = started(fake_program, f"{named(run)}\n{killed(1)}\nexit 9")
    status, _, err = ends(program, **RESTART, **cluster)
    assert status == 137
    assert err.count("; restart ") == restarts
    assert err.endswith(f"psopt: not restarted: {problem}\n{told(run)}")


ERROR = "echo 'psopt: rank 1 (worker 0) on host failed, the job ends: ValueError: 1' >&2"


@pytest.mark.parametrize(
    "body",
    [
        f"{ERROR}; {killed(2)}; exit 1",
        "kill -TERM $PPID; exit 1",
        "exit 0",
    ],
    ids=["error", "signal", "ended"],
)
def test_what_is_no_loss(fake_program: Program, run: Path, body: str) -> None:
    program = started(fake_program, f"{named(run)}\n{body}")
    status, _, err = ends(program, **RESTART)
    assert status != 0
    assert "restart" not in err


@pytest.mark.parametrize("end", ["exit 9", "exit 255", "kill -TERM $$", "kill -KILL $$"])
def test_an_error_ends_with_its_status(fake_program: Program, run: Path, end: str) -> None:
    """However mpirun ended: it may have had to be ended."""
    program = started(fake_program, f"{named(run)}\n{ERROR}\n{end}")
    assert ends(program, **RESTART)[0] == 1


def test_ranks_that_never_met(fake_program: Program) -> None:
    """There is nothing to go on with."""
    program = started(fake_program, f"{killed(1)}\nexit 9")
    assert "restart" not in ends(program, **RESTART)[2]
