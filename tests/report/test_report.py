from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from psopt.record import RunDirectory
from psopt.report import ReportError, report
from tests.commands import call, no_rank, refused
from tests.report.conftest import bare
from tests.report.synthetic import make_batch_run

__all__ = ["no_rank"]

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


def test_objectives_have_a_figure(tmp_path: Path, runs: dict[str, Path], console: Console) -> None:
    batch = make_batch_run(tmp_path / "dane", [2.0, 1.0])
    out = report([runs["bsp"], batch], tmp_path / "out", console)
    assert (out / "gap.png").read_bytes().startswith(PNG)
    text = console.export_text()
    assert "objective" in text
    assert f"wrote {out}/gap.png" in text
    report([runs["bsp"]], tmp_path / "none", console)
    assert not (tmp_path / "none" / "gap.png").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--optimum", "nan"], "--optimum nan: not a finite number"),
        (["--optimum", "0.5"], "differ between these runs: dane; ridge. Report each of these 2"),
        (["--window", "3"], "--window 3: not START:END in seconds"),
        (["--window", "4:2"], "--window 4:2: not START:END"),
        (["--window", "2:2"], "--window 2:2: not START:END"),
        (["--window", "1:2:3"], "--window 1:2:3: not START:END"),
        (["--window", "nan:2"], "--window nan:2: not START:END"),
        (["--window", "one:2"], "--window one:2: not START:END"),
        (["--window", "9:"], "dane did nothing in it; its timeline goes from 0.000 s to 1.000 s"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: list[str], words: str) -> None:
    config = "loss: {name: mse}\n"
    paths = [make_batch_run(tmp_path / "dane", [2.0, 1.0])]
    paths += [make_batch_run(tmp_path / "ridge", [2.0, 1.0], config=config)]
    assert words in refused("report", *paths, "--out", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def test_options_without_what_they_are_about(tmp_path: Path) -> None:
    path = bare(tmp_path / "run", "name: job\n")
    assert "no objective was recorded" in refused("report", path, "--optimum", "0.5")
    assert "no timeline was recorded" in refused("report", path, "--window", "0:1")
    assert "--optimum" in refused("report", path, "--optimum", "least")


def test_options_that_fit(tmp_path: Path) -> None:
    path = make_batch_run(tmp_path / "dane", [2.0, 1.0])
    status, out, err = call("report", path, "--optimum", "1.5", "--window", ":0.5")
    assert (status, err) == (0, "")
    assert "lowest objective, 1, is below --optimum 1.5" in " ".join(out.split())
    assert {"gap.png", "timeline.png"} <= {entry.name for entry in path.iterdir()}


def test_a_broken_directory_is_named_after_the_others_are_reported(
    tmp_path: Path, runs: dict[str, Path], console: Console
) -> None:
    with pytest.raises(ReportError, match="missing: no such directory"):
        report([runs["bsp"], tmp_path / "missing"], tmp_path / "out", console)
    assert "bsp-job" in console.export_text()
    assert (tmp_path / "out" / "report.png").exists()


def test_only_broken_directories(tmp_path: Path, console: Console) -> None:
    with pytest.raises(ReportError, match="missing: no such directory"):
        report([tmp_path / "missing"], tmp_path / "out", console)
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
