from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from psopt.report import ReportError
from psopt.report.runs import read_runs
from tests.report.conftest import bare
from tests.report.synthetic import make_batch_run


def test_whole_run(runs: dict[str, Path]) -> None:
    (run,) = read_runs([runs["asp"]])
    assert (run.label, run.scheme, run.workers, run.status) == ("asp-job", "asp", 3, "completed")
    assert run.target == 0.97
    assert run.last("samples") == 180 * 64
    assert sum(run.staleness.values()) == 180
    assert len(run.evaluations) == 13
    assert run.waiting is not None
    assert 0 < run.waiting < 0.5


def test_run_without_summary_is_read_from_its_rows(runs: dict[str, Path]) -> None:
    (run,) = read_runs([runs["going"]])
    assert (run.label, run.scheme, run.workers, run.status) == (
        "going-job",
        "wasp",
        2,
        "no summary",
    )
    assert run.last("step") == 120
    assert run.last("test_accuracy") == run.evaluations[-1]["test_accuracy"]
    assert sum(run.staleness.values()) == 120
    assert max(run.staleness) >= 1
    assert run.waiting is not None
    assert 0 < run.waiting < 0.5


def test_empty_run(runs: dict[str, Path]) -> None:
    (run,) = read_runs([runs["empty"]])
    assert run.label == "123"
    assert (run.scheme, run.workers, run.target, run.waiting) == (None, None, None, None)
    assert run.staleness == {}
    assert run.last("samples") is None


def test_objectives_are_those_that_can_be_drawn(tmp_path: Path) -> None:
    path = make_batch_run(tmp_path / "dane", [2.0, None, 0.5], start=3.0)
    with (path / "metrics.jsonl").open("a") as stream:
        stream.write('{"kind": "step", "step": 4, "objective": null}\n')
        stream.write('{"kind": "step", "step": 5, "objective": -1e300}\n')
        stream.write('{"kind": "step", "step": 6}\n')
    (run,) = read_runs([path])
    assert [(row["step"], row["objective"]) for row in run.objectives] == [
        (0, 3.0),
        (1, 2.0),
        (3, 0.5),
    ]
    assert len(run.steps) == 6


def test_each_directory_once(runs: dict[str, Path]) -> None:
    path = runs["bsp"]
    assert len(read_runs([path, path / ".." / path.name])) == 1


def test_labels_differ(tmp_path: Path, runs: dict[str, Path]) -> None:
    names = ("a/job-1", "a/job-2", "b/other", "c/other")
    paths = [bare(tmp_path / name, "name: job\n") for name in names]
    labels = [run.label for run in read_runs([*paths, runs["bsp"]])]
    assert labels[:2] == ["job-1", "job-2"]
    assert labels[2:4] == [f"job ({tmp_path}/b/other)", f"job ({tmp_path}/c/other)"]
    assert labels[4] == "bsp-job"


def test_every_broken_directory_is_named(tmp_path: Path, runs: dict[str, Path]) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(runs["bsp"], damaged)
    (damaged / "metrics.jsonl").write_text('{"step": 1}\n{\n{"step": 2}\n')
    summary = bare(tmp_path / "summary", "name: x\n")
    (summary / "summary.json").write_text("{")
    trace = bare(tmp_path / "trace", "name: x\n")
    (trace / "timeline.json").write_text("[\nx\n]\n")
    config = bare(tmp_path / "config", "[1, 2]\n")
    syntax = bare(tmp_path / "syntax", "{\n")
    binary = bare(tmp_path / "binary", "name: x\n")
    (binary / "config.yaml").write_bytes(b"\xff\xfe\x00")
    broken = [damaged, summary, trace, config, syntax, binary, tmp_path / "missing", tmp_path]
    with pytest.raises(ReportError) as caught:
        read_runs([runs["bsp"], *broken])
    text = str(caught.value)
    for path in broken:
        assert str(path) in text
    assert "metrics.jsonl:2" in text
    assert "timeline.json:2" in text
    assert f"it holds 6 runs; name them: {tmp_path}/*" in text


def test_no_directory() -> None:
    with pytest.raises(ReportError, match="no run directories"):
        read_runs([])
