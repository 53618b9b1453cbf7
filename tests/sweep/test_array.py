"""Arrays of jobs that make a sweep; shell scripts stand in for a batch system's commands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psopt.launch.asking import Rejected
from psopt.record import Commands, Submission, SweepDirectory
from psopt.sweep.array import Batch, batches, submit
from psopt.sweep.book import Book, Only, SweepError
from tests.sweep.making import planned

Sbatch = Callable[[str], None]
SIMULATED = "name: rates\nbase: job.yaml\nsimulate: true\n"
RANKS = "name: rates\nbase: job.yaml\nranks: 4\n"


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sbatch:
    """Put commands of a batch system first on PATH; arrays have at most 10 tasks; `sbatch` is as given."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def write(body: str) -> None:
        programs = {
            "sbatch": body,
            "scontrol": "echo 'MaxArraySize = 10'",
            "squeue": "",
            "sacct": "",
        }
        for name, text in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)

    write(f'echo "$@" >>{tmp_path}/said; echo $((100 + $(wc -l <{tmp_path}/said)))')
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return write


def arrays(
    folder: Path, text: str, most: int | None = None, **changes: Any
) -> tuple[Book, list[Batch]]:
    plan = planned(folder / "files", text, **changes)
    book = Book(plan, SweepDirectory(folder / "out"))
    todo = book.chosen(book.standings(), Only.MISSING, None)
    made = batches(todo, plan.config, book.directory, most)
    book.prepare(todo)
    return book, made


def test_twenty_five_runs_are_three_arrays_of_ten(sbatch: Sbatch, tmp_path: Path) -> None:
    book, made = arrays(tmp_path, "seeds: 25\n")
    assert [len(each.todo) for each in made] == [10, 10, 5]
    assert [line for each in made for line in each.text.splitlines() if "--array" in line] == [
        "#SBATCH --array=0-9",
        "#SBATCH --array=0-9",
        "#SBATCH --array=0-4",
    ]
    told: list[str] = []
    submit(made, lambda _, submission: told.append(submission.job))
    assert told == ["101", "102", "103"]
    for place, run in enumerate(book.plan.runs):
        submission = Submission.read(book.directory.run_path(run.id))
        assert submission is not None
        assert submission.job == f"{101 + place // 10}_{place % 10}"
        assert submission.commands == Commands(
            "sbatch", "srun", "squeue", "scancel", "sacct", "scontrol"
        )
    said = (tmp_path / "said").read_text()
    assert "dependency" not in said
    assert said.splitlines()[0] == f"--parsable {tmp_path}/out/batch/0001/job.sh"
    again, rest = arrays(tmp_path, "seeds: 26\n")
    assert len(rest) == 1  # numbers go on
    assert rest[0].array.folder.name == "0004"
    assert again.plan.runs[:25] == book.plan.runs


def test_a_bound_holds_over_all_arrays(sbatch: Sbatch, tmp_path: Path) -> None:
    _, made = arrays(tmp_path, "seeds: 25\n", most=3)
    assert "#SBATCH --array=0-9%3\n" in made[0].text
    submit(made, lambda *_: None)
    words = [line.split() for line in (tmp_path / "said").read_text().splitlines()]
    assert [line[1:-1] for line in words] == [
        [],
        ["--dependency=afterany:101"],
        ["--dependency=afterany:102"],
    ]


def test_runs_that_ask_for_the_same_are_together(sbatch: Sbatch, tmp_path: Path) -> None:
    text = "grid: {batch.cpus_per_task: [1, 2], scheme: [{name: bsp}, {name: asp}]}\nseeds: 2\n"
    _, made = arrays(tmp_path, text)
    assert [len(each.todo) for each in made] == [4, 4]
    asked = [{each.run.config.batch.cpus_per_task for each in batch.todo} for batch in made]
    assert asked == [{1}, {2}]
    assert ["--cpus-per-task=1" in batch.text for batch in made] == [True, False]


def test_a_task_makes_its_run(sbatch: Sbatch, tmp_path: Path) -> None:
    """The script of a sweep of virtual workers, as a batch system would start it."""
    book, (made,) = arrays(tmp_path, "seeds: 2\n", batch={"signal_seconds": 5})
    submit([made], lambda *_: None)
    variables = {"SLURM_ARRAY_JOB_ID": "101", "SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "103"}
    for _ in range(2):  # the second time there is nothing to do
        done = subprocess.run(
            ["bash", made.script], env={**os.environ, **variables}, check=False, capture_output=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    first, second = (standing for _, standing in book.standings())
    assert (first.state, second.state) == ("unknown", "done")
    assert second.summary["seed"] == 2
    assert made.todo[1].path.joinpath("output.log").read_text().startswith("job 101_1\n")


def test_ranks_are_started_by_srun(sbatch: Sbatch, tmp_path: Path) -> None:
    batch = {"tasks_per_node": 2, "time": "2h"}
    plan = planned(tmp_path / "files", "seeds: 1\n", head=RANKS, batch=batch)
    book = Book(plan, SweepDirectory(tmp_path / "out"))
    todo = book.chosen(book.standings(), Only.MISSING, None)
    (made,) = batches(todo, plan.config, book.directory, None)
    for line in (
        "#SBATCH --job-name=rates\n",
        "#SBATCH --ntasks=4\n",
        "#SBATCH --nodes=2\n",
        "\n  srun ",
    ):
        assert line in made.text
    assert "--simulate" not in made.text


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"heterogeneous": True, "tasks_per_node": 1}, "batch.heterogeneous: Slurm has no arrays"),
        ({"nodes": 9}, "batch.nodes: 3 workers and a coordinator leave some of 9 nodes empty"),
        ({"gpus_per_node": 1}, "batch.gpus_per_node: say on how many nodes"),
    ],
)
def test_what_cannot_be_submitted_is_said_before(
    sbatch: Sbatch, tmp_path: Path, batch: dict[str, Any], said: str
) -> None:
    plan = planned(tmp_path / "files", "seeds: 2\n", head=RANKS, batch=batch)
    book = Book(plan, SweepDirectory(tmp_path / "out"))
    todo = book.chosen(book.standings(), Only.MISSING, None)
    with pytest.raises(SweepError) as caught:
        batches(todo, plan.config, book.directory, None)
    assert said in str(caught.value)
    assert str(caught.value).count("(run ") == 1
    assert not (tmp_path / "out").exists()


def test_a_rejection_in_the_middle(sbatch: Sbatch, tmp_path: Path) -> None:
    """The first array is on record, of the second there is nothing left."""
    sbatch('case "$*" in *0002*) echo "too many jobs" >&2; exit 1;; esac; echo 7')
    book, made = arrays(tmp_path, "seeds: 25\n")
    told: list[str] = []
    with pytest.raises(Rejected) as caught:
        submit(made, lambda _, submission: told.append(submission.job))
    assert "too many jobs" in str(caught.value)
    assert told == ["7"]
    assert [folder.name for folder in (tmp_path / "out" / "batch").iterdir()] == ["0001"]
    states = [standing.state for _, standing in book.standings()]
    assert (states[:10], states[10:]) == (["unknown"] * 10, ["missing"] * 15)
