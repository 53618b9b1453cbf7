from __future__ import annotations

from pathlib import Path

from rich.console import Console

from psopt.report.runs import Run, read_runs
from psopt.report.table import cells, comparison, remarks


def run(**summary: object) -> Run:
    return Run(Path("x"), "job", {"scheme": {"name": "wasp"}}, summary, [], [], [])


WHOLE = run(
    workers=4,
    crew="mpi",
    status="completed",
    steps=12_345,
    samples=790_080,
    epochs=2.5,
    seconds=100.0,
    test_accuracy=0.98765,
    seconds_to_target=8.21,
    staleness_histogram={"0": 1, "10": 1, "2": 2},
    worker_seconds=[
        {"worker": 0, "compute": 6.0, "wait": 1.0, "communication": 1.0},
        {"worker": 1, "compute": 1.0, "wait": 1.0, "communication": 0.0},
    ],
)


def test_cells() -> None:
    assert cells(WHOLE) == (
        *("job", "wasp", "4", "mpi", "completed", "12,345", "790,080", "100.0", "7,901"),
        *("2.5", "-", "-", "98.77", "8.21", "3.50 / 10", "20.0"),
    )
    assert cells(run()) == ("job", "wasp", "-", "-", "no summary", *["-"] * 11)


def test_zeroes_and_nulls() -> None:
    found = cells(run(seconds=0.0, samples=0, test_accuracy=None, staleness_histogram={}))
    assert found[5:] == ("-", "0", "0", *["-"] * 8)


def test_wide_console_gets_one_table() -> None:
    assert len(comparison([WHOLE], 200)) == 1


def test_narrow_console_gets_several_with_every_column() -> None:
    tables = comparison([WHOLE, run()], 60)
    console = Console(width=60, record=True)
    for table in tables:
        console.print(table)
        assert table.columns[0].header == "run"
    text = console.export_text()
    assert len(tables) > 1
    for cell in cells(WHOLE):
        assert cell in text
    assert max(map(len, text.splitlines())) <= 60


def test_objective_has_a_column_where_a_run_has_one() -> None:
    rows = [{"objective": value} for value in (2.0, 0.123456789, None)]
    batch = Run(Path("x"), "batch", {}, {}, rows, [], [])
    assert cells(batch)[10:12] == ("0.123456789", "-")
    assert cells(batch, 0.12)[11] == "3.5e-03"
    for runs, shown in (([WHOLE, batch], True), ([WHOLE, run()], False)):
        (table,) = comparison(runs, 200)
        assert ("objective" in [column.header for column in table.columns]) == shown
    for optimum in (None, 0.12):
        (table,) = comparison([WHOLE, batch], 200, optimum)
        assert ("gap" in [column.header for column in table.columns]) is (optimum is not None)


def test_staleness_has_a_column_where_there_is_some() -> None:
    fresh = run(staleness_histogram={"0": 7})
    for runs, shown in (([WHOLE, fresh], True), ([fresh, fresh], False)):
        (table,) = comparison(runs, 200)
        assert ("staleness mean/max" in [column.header for column in table.columns]) == shown


def test_two_clocks_are_said() -> None:
    said = "seconds are of the virtual cluster for some runs, and of a clock for others"
    assert said in remarks([run(crew="mpi"), run(crew="simulated")])
    assert said not in remarks([run(crew="mpi"), run(crew="mpi"), run()])


def test_every_run_has_a_row(runs: dict[str, Path]) -> None:
    console = Console(width=200, record=True)
    console.print(*comparison(read_runs(list(runs.values())), 200))
    text = console.export_text()
    for words in ("bsp-job", "asp-job", "diverged", "no summary", "failed", "123"):
        assert words in text


def test_remarks(runs: dict[str, Path]) -> None:
    lines = remarks(read_runs(list(runs.values())))
    assert "wild-job: diverged: loss is not finite" in lines
    assert "wild-job: 3 updates were refused" in lines
    assert "failed-job: failed: worker 1 raised ValueError" in lines
    assert "going-job: no summary.json: the run is going on, or was killed" in lines
    assert "123: no evaluation, so it has no line in the plots of loss and accuracy" in lines
    assert not any(line.startswith("bsp-job") for line in lines)
