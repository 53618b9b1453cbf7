from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from psopt.record import RunDirectory
from psopt.report import ReportError, report
from tests.report.conftest import bare

PNG = b"\x89PNG\r\n"


def test_one_run_reports_into_its_directory(tmp_path: Path, console: Console) -> None:
    path = bare(tmp_path / "run (1)", "name: job\n")
    assert report([path], None, console) == path
    assert (path / "report.png").read_bytes().startswith(PNG)
    assert "no summary" in console.export_text()


def test_several_runs_report_beside(
    tmp_path: Path, runs: dict[str, Path], console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = report([runs["bsp"], runs["asp"], runs["empty"]], None, console)
    assert out == Path("report")
    assert sorted(path.name for path in out.iterdir()) == [
        "report.png",
        "staleness.png",
        "timeline-asp-job.png",
        "timeline-bsp-job.png",
    ]
    text = console.export_text()
    assert "asp-job" in text
    assert "wrote report/staleness.png" in text


def test_svg_too_and_reproducible(tmp_path: Path, runs: dict[str, Path], console: Console) -> None:
    for name in ("one", "two"):
        report([runs["asp"]], tmp_path / name, console, formats=("png", "svg"))
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [
        *("report.png", "report.svg", "staleness.png", "staleness.svg"),
        *("timeline.png", "timeline.svg"),
    ]
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
    assert "asp-job" in (tmp_path / "one" / "staleness.svg").read_text()


def test_synchronous_run_has_no_staleness_figure(
    tmp_path: Path, runs: dict[str, Path], console: Console
) -> None:
    report([runs["bsp"]], tmp_path, console)
    assert not (tmp_path / "staleness.png").exists()


def test_broken_directory_stops_before_anything_is_written(
    tmp_path: Path, runs: dict[str, Path], console: Console
) -> None:
    with pytest.raises(ReportError, match="missing: no such directory"):
        report([runs["bsp"], tmp_path / "missing"], tmp_path / "out", console)
    assert not (tmp_path / "out").exists()


def test_output_in_the_way(tmp_path: Path, runs: dict[str, Path], console: Console) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="file: cannot write"):
        report([runs["empty"]], tmp_path / "file", console)


@pytest.mark.parametrize("formats", [("pdf",), ()])
def test_unknown_format(runs: dict[str, Path], console: Console, formats: tuple[str]) -> None:
    with pytest.raises(ReportError, match="unknown format"):
        report([runs["bsp"]], None, console, formats=formats)


def test_without_matplotlib_the_table_is_printed_and_the_remedy_named(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bare(tmp_path / "run", "name: job\n")
    for name in ("matplotlib.figure", "matplotlib.style"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ReportError, match=r"pip install 'psopt\[plot\]'"):
        report([path], None, console)
    assert "no summary" in console.export_text()


def test_importing_the_room_does_not_import_matplotlib() -> None:
    code = "import sys, psopt.report; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_timelines_of_runs_whose_names_look_alike(tmp_path: Path, console: Console) -> None:
    paths = []
    for name in ("a", "b"):
        run = RunDirectory(bare(tmp_path / name / "x y", "name: job\n"))
        event = '[\n{"ph": "X", "name": "compute", "tid": 1, "ts": 0, "dur": 5}\n'
        run.timeline_path.write_text(event)
        paths.append(run.path)
    out = report(paths, tmp_path / "out", console)
    assert len(list(out.glob("timeline-*.png"))) == 2
