"""The report of a sweep: groups, spreads, tables as files, curves, and a page that needs nothing else."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from psopt.record import (
    MetricsWriter,
    RunDirectory,
    State,
    SweepDirectory,
    SweepEntry,
    SweepRecord,
)
from psopt.report import ReportError, report_sweep
from psopt.report.sweep import MEASURES, Spread, Sweep, read_sweep
from psopt.report.sweep_curves import MOST_LINES, band
from psopt.report.sweep_page import inline, page
from psopt.report.sweep_table import TABLES, best_text, rows, spread_text
from psopt.sweep.plan import identity
from tests.commands import call, no_rank, refused

__all__ = ["no_rank"]
GOLDEN = Path(__file__).parent / "golden"
HOSTILE = "=x<script>alert(1)</script>|$_&\\%#~^{}\"'`*"
ACCURACY, LOSS = MEASURES[0], MEASURES[1]


def entry(**assignment: Any) -> SweepEntry:
    named = {key.replace("_", ".", 1): value for key, value in assignment.items()}
    return SweepEntry(identity(named), named)


def finish(directory: SweepDirectory, run: SweepEntry, accuracies: list[float]) -> None:
    """Make a run that is done, evaluated at every hundred samples."""
    place = RunDirectory(directory.prepare(run.id, "name: x\n", run.assignment))
    place.write_config("name: x\n")
    place.environment_path.write_text(
        json.dumps(
            {
                "hostname": "node1<b>",
                "python": "3.11.2",
                "packages": {"torch": "2.10.0"},
                "git": {"commit": "abc", "dirty": True},
            }
        )
    )
    scale = 1 + 0.1 * run.assignment["seed"]
    with MetricsWriter(place.metrics_path) as metrics:
        for step, accuracy in enumerate(accuracies, 1):
            place_of = {"samples": 100 * step, "seconds": scale * step}
            loss = {"test_accuracy": accuracy, "test_loss": 1 - accuracy}
            metrics.write({"kind": "evaluation", **place_of, **loss})
    place.write_summary(
        {
            "status": "completed",
            "test_accuracy": accuracies[-1],
            "test_loss": 1 - accuracies[-1],
            "seconds": scale * len(accuracies),
            "samples": 100 * len(accuracies),
        }
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two schemes and a hostile one, two seeds: two runs done, one failed, one done, two missing."""
    sweep = SweepDirectory(tmp_path / "sweep")
    runs = [
        entry(scheme={"name": name}, optimizer_lr=0.1, seed=seed)
        for name in ("bsp", "asp", HOSTILE)
        for seed in (1, 2)
    ]
    sweep.write(SweepRecord("rates", ("scheme", "optimizer.lr", "seed"), tuple(runs), {}))
    finish(sweep, runs[0], [0.5, 0.75])
    finish(sweep, runs[1], [0.25, 0.5])
    finish(sweep, runs[3], [0.5, 0.625, 0.875])
    failed = RunDirectory(sweep.prepare(runs[2].id, "name: x\n", runs[2].assignment))
    failed.write_config("name: x\n")
    failed.write_summary({"status": "diverged", "reason": "loss <nan>\nat step 3"})
    return sweep.path


def test_counts(directory: Path) -> None:
    sweep = read_sweep(directory)
    assert sweep.tally == "6 runs: 3 done, 1 failed, 2 missing"
    assert [run.state for run in sweep.runs] == [
        *(State.DONE, State.DONE, State.FAILED, State.DONE, State.MISSING, State.MISSING)
    ]


def test_spread_over_seeds(directory: Path) -> None:
    first, second, third = read_sweep(directory).groups()
    assert first.values == {"scheme": {"name": "bsp"}, "optimizer.lr": 0.1}
    assert first.spread(ACCURACY) == Spread(2, 62.5, pytest.approx(25 / math.sqrt(2)))
    assert first.spread(LOSS) == Spread(2, 0.375, pytest.approx(0.25 / math.sqrt(2)))
    assert second.spread(ACCURACY) == Spread(1, 87.5, None)
    assert third.spread(ACCURACY) is None
    assert first.label == "scheme=bsp, optimizer.lr=0.1"


def test_group_by(directory: Path) -> None:
    sweep = read_sweep(directory)
    (whole,) = sweep.groups(["optimizer.lr"])
    recorded = (State.DONE, State.FAILED, State.RUNNING, State.MISSING, State.UNKNOWN)
    assert [whole.count(state) for state in recorded] == [3, 1, 0, 2, 0]
    assert whole.spread(ACCURACY) == Spread(3, pytest.approx(212.5 / 3), pytest.approx(19.09407))
    assert [group.values for group in sweep.groups(["seed"])] == [{"seed": 1}, {"seed": 2}]
    (alone,) = sweep.groups([])
    assert (alone.label, len(alone.runs)) == ("all", 6)
    with pytest.raises(
        ReportError, match=r"'lr' is not swept here; those are scheme, optimizer\.lr"
    ):
        sweep.groups(["lr"])


def test_best_run(directory: Path) -> None:
    sweep = read_sweep(directory)
    assert sweep.best is sweep.runs[3]
    assert best_text(sweep) == (
        f"best run: scheme=asp optimizer.lr=0.1 seed=2 ({sweep.runs[3].entry.id}): "
        "test acc. % 87.50, test loss 0.125, seconds 3.6, samples 300"
    )


def test_no_run_is_done(tmp_path: Path) -> None:
    sweep = SweepDirectory(tmp_path)
    sweep.write(SweepRecord("rates", ("seed",), (entry(seed=1),), {}))
    found = read_sweep(tmp_path)
    assert (found.best, best_text(found), found.measures) == (None, "", [])
    assert rows(found, found.groups()) == [["0", "0", "1"]]
    for _, make in TABLES.values():
        make(found, found.groups())
    assert "No run is done." in page(found, found.groups(), [])


def test_a_damaged_run_is_unknown(directory: Path) -> None:
    sweep = read_sweep(directory)
    RunDirectory(sweep.runs[0].path).metrics_path.write_text("nonsense\n{}\n")
    found = read_sweep(directory)
    assert found.runs[0].state is State.UNKNOWN
    assert found.tally == "6 runs: 2 done, 1 failed, 2 missing, 1 unknown"


def test_spread_text() -> None:
    assert spread_text(Spread(2, 62.5, 17.677), ACCURACY) == "62.50 ± 17.68"
    assert spread_text(Spread(2, 0.375, 0.17677), LOSS) == "0.375 ± 0.18"
    assert spread_text(Spread(1, 0.375, None), LOSS) == "0.375"
    assert spread_text(None, LOSS) == "-"


@pytest.mark.parametrize("form", TABLES)
def test_golden_table(directory: Path, form: str) -> None:
    """Hostile text is text in each of them."""
    suffix, make = TABLES[form]
    sweep = read_sweep(directory)
    assert make(sweep, sweep.groups()) == (GOLDEN / f"table.{suffix}").read_text(encoding="utf-8")


def test_band_of_equal_evaluations(directory: Path) -> None:
    group = read_sweep(directory).groups()[0]
    found = band(group.runs, "samples", "test_accuracy")
    assert found is not None
    np.testing.assert_allclose(found.x, [100, 200])
    np.testing.assert_allclose(found.mean, [37.5, 62.5])
    np.testing.assert_allclose(found.deviation, [25 / math.sqrt(2)] * 2)
    in_time = band(group.runs, "seconds", "test_loss")
    assert in_time is not None
    np.testing.assert_allclose(in_time.x, [1.15, 2.3])
    np.testing.assert_allclose(in_time.mean, [0.625, 0.375])


def test_band_of_other_lengths(directory: Path) -> None:
    done = [run for run in read_sweep(directory).runs if run.state is State.DONE]
    found = band([done[0], done[2]], "samples", "test_accuracy")
    assert found is not None
    np.testing.assert_allclose(found.x, [100, 200])
    np.testing.assert_allclose(found.mean, [50.0, 68.75])
    in_time = band([done[0], done[2]], "seconds", "test_accuracy")  # to 2.2 s, and from 1.2 s
    assert in_time is not None
    np.testing.assert_allclose(in_time.x, [1.2, 2.2])
    assert band([], "samples", "test_loss") is None


def test_files(directory: Path, console: Console) -> None:
    report_sweep(
        *(directory, None, console), formats=("png", "svg"), tables=("csv", "latex"), html=True
    )
    names = ["table.csv", "table.tex", "curves.png", "curves.svg", "report.html"]
    assert all((directory / name).stat().st_size > 100 for name in names)
    said = console.export_text().splitlines()
    assert "rates: 6 runs: 3 done, 1 failed, 2 missing" in said
    assert [line for line in said if line.startswith("wrote ")] == [
        f"wrote {directory / name}" for name in names
    ]
    (failed,) = [line for line in said if line.startswith("failed: ")]
    assert failed.endswith(r": diverged: loss <nan>\nat step 3")


class References(HTMLParser):
    """Whatever of a page leads out of it, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            leads = name in ("src", "srcset", "href", "xlink:href", "data", "action", "poster")
            if (leads and not (value or "").startswith("#")) or name.startswith("on"):
                self.found.append(f"{tag} {name}={value}")

    handle_startendtag = handle_starttag


def test_the_page_needs_nothing_else(directory: Path, console: Console) -> None:
    report_sweep(directory, None, console, html=True)
    text = (directory / "report.html").read_text(encoding="utf-8")
    references = References()
    references.feed(text)
    assert references.found == []
    assert not references.tags & {"script", "link", "iframe", "img", "object", "embed", "base"}
    assert "//" not in text
    assert set(re.findall(r"url\((.)", text)) == {"#"}
    assert "@import" not in text
    assert "default-src 'none'" in text
    for part in ("<svg", "62.50 ± 17.68", "6 runs: 3 done, 1 failed, 2 missing", "2.10.0"):
        assert part in text
    assert "node1&lt;b&gt;" in text
    assert "abc with changes" in text


def test_inline_svg() -> None:
    svg = '<?xml version="1.0"?><!DOCTYPE svg SYSTEM "http://x"><svg xmlns="http://y" width="1">'
    svg += "<metadata>http://z</metadata><g/></svg>\n"
    assert inline(svg) == '<svg width="1"><g/></svg>'


def test_more_groups_than_lines(tmp_path: Path, console: Console) -> None:
    sweep = SweepDirectory(tmp_path)
    runs = [entry(optimizer_lr=float(rate), seed=1) for rate in range(MOST_LINES + 3)]
    sweep.write(SweepRecord("rates", ("optimizer.lr", "seed"), tuple(runs), {}))
    for run in runs:
        finish(sweep, run, [0.5, 0.6])
    report_sweep(tmp_path, None, console)
    said = console.export_text()
    assert f"the curves show the first {MOST_LINES} groups, and leave out 3" in said


def test_narrow_terminal_cuts_no_number(directory: Path) -> None:
    console = Console(width=60, record=True, force_terminal=False)
    report_sweep(directory, None, console, group_by=["optimizer.lr"])
    said = console.export_text()
    assert "70.83 ± 19.09" in said
    assert "…" not in said


def test_commands(directory: Path) -> None:
    status, out, _ = call("report", directory, "--group-by", "optimizer.lr", "--table", "json")
    assert status == 0
    assert "3 done, 1 failed, 2 missing" in out
    (group,) = json.loads((directory / "table.json").read_text())["groups"]
    assert (group["done"], group["failed"], group["missing"]) == (3, 1, 2)
    assert "'lr' is not swept" in refused("report", directory, "--group-by", "lr")
    assert "--table: 'xls' is none of csv" in refused("report", directory, "--table", "xls")
    assert "--optimum is an option of the report of runs" in refused(
        *("report", directory, "--optimum", "1")
    )
    assert "report it alone" in refused("report", directory, directory.parent)
    run = next(directory.glob("runs/*/*"))
    assert "--html is an option of the report of a sweep" in refused("report", run, "--html")


def test_texts_do_not_command_the_terminal(tmp_path: Path) -> None:
    sweep = SweepDirectory(tmp_path / "sweep")
    runs = (SweepEntry(identity({}), {"a\x1b[2J": "\x1b]0;x\x07", "b": {"\x1b": "\x1b"}}),)
    sweep.write(SweepRecord("x\x1b[2J", ("a\x1b[2J", "b"), runs, {}))
    sweep.prepare(runs[0].id, "", {})
    for command in ("report", "status"):
        _, out, err = call(command, sweep.path)
        assert "\x1b" not in out + err
        assert "\\x1b[2J" in out


def test_a_linked_run_is_unknown(directory: Path) -> None:
    run = RunDirectory(read_sweep(directory).runs[0].path)
    run.metrics_path.rename(directory / "elsewhere")
    run.metrics_path.symlink_to(directory / "elsewhere")
    found = read_sweep(directory).runs[0]
    assert found.state is State.UNKNOWN
    assert "is a symbolic link" in found.reason


def test_read_only(directory: Path) -> None:
    assert isinstance(read_sweep(directory), Sweep)
    with pytest.raises(ReportError, match="no such directory"):
        read_sweep(directory / "none")
