"""What the figures show, and that nothing of it leaves the page or lies on something else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.text import Text

from psopt.report.curves import draw_curves, legend_columns
from psopt.report.gantt import draw_timeline, parse_window, timeline_height
from psopt.report.runs import Run, read_runs
from psopt.report.staleness import asynchronous, draw_staleness, staleness_height
from psopt.report.style import WIDTH, figure, line_style, scientific, shorten
from tests.report.synthetic import make_batch_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawn(figure: Figure) -> Figure:
    FigureCanvasAgg(figure).draw()
    return figure


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible()]


def assert_on_page(figure: Figure) -> None:
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 >= -0.02
    assert box.y0 >= -0.02
    assert box.x1 <= width + 0.02
    assert box.y1 <= height + 0.02


def evaluated(label: str, losses: Sequence[float | None], **config: Any) -> Run:
    rows = [
        {"seconds": k, "samples": 1000 * k, "test_loss": loss, "test_accuracy": 0.1 * k}
        for k, loss in enumerate(losses)
    ]
    return Run(Path("x"), label, config, {}, [], rows, [])


def test_curves(runs: dict[str, Path]) -> None:
    found = read_runs(list(runs.values()))
    with figure(5.0) as page:
        draw_curves(page, found)
        drawn(page)
        words = texts(page)
        for label in ("training time (s)", "samples", "test loss", "test accuracy (%)"):
            assert label in words
        for label in ("bsp-job", "asp-job", "wild-job", "going-job", "target 97 %"):
            assert label in words
        assert "failed-job" not in words
        assert len(page.axes) == 4
        bsp = page.axes[2].get_lines()[0]
        assert max(bsp.get_ydata()) == pytest.approx(
            100 * found[0].evaluations[-1]["test_accuracy"]
        )
        assert_on_page(page)


def test_run_that_blows_up_does_not_flatten_the_others() -> None:
    with figure(5.0) as page:
        draw_curves(page, [evaluated("a", [2.0, 1.0, 0.5]), evaluated("b", [2.0, 1e3, 1e20, None])])
        drawn(page)
        assert 2.0 < page.axes[0].get_ylim()[1] < 10.0
        assert "beyond 6 not shown" in texts(page)


def test_loss_that_spans_decades_is_logarithmic() -> None:
    for losses, scale in (([2.0, 0.01], "log"), ([2.0, 1.0], "linear"), ([2.0, 0.0], "linear")):
        with figure(5.0) as page:
            draw_curves(page, [evaluated("a", losses)])
            assert page.axes[0].get_yscale() == scale


def test_logarithmic_axis_has_plain_numbers() -> None:
    with figure(5.0) as page:
        draw_curves(page, [evaluated("a", [2.0, 0.01])])
        words = texts(drawn(page))
        assert {"0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2"} <= set(words)
        assert not any("$" in word for word in words)


def test_numbers_with_powers_of_ten() -> None:
    assert [scientific(value) for value in (1e-10, 2e-3, 1.0, 2.55e12, 0.99999)] == [
        *("10⁻¹⁰", "2·10⁻³", "10⁰", "2.55·10¹²", "10⁰")
    ]


def test_constant_and_zero_losses() -> None:
    for losses in ([0.0, 0.0], [1.0], [-1.0, -1.0]):
        with figure(5.0) as page:
            draw_curves(page, [evaluated("a", losses)])
            drawn(page)


def test_nothing_to_show_is_said() -> None:
    with figure(5.0) as page:
        draw_curves(page, [evaluated("a", [])])
        drawn(page)
        assert texts(page).count("no test loss was recorded") == 2
        assert texts(page).count("no test accuracy was recorded") == 2


def test_regression_has_no_accuracy() -> None:
    run = evaluated("a", [2.0, 1.0])
    for row in run.evaluations:
        row["test_accuracy"] = None
    with figure(5.0) as page:
        draw_curves(page, [run])
        assert texts(drawn(page)).count("no test accuracy was recorded") == 2
        assert "no test loss was recorded" not in texts(page)


def test_long_and_odd_labels_stay_on_the_page() -> None:
    labels = ["$x_1$ " + "a" * 200, *(f"run-{k}-{'y' * 30}" for k in range(20))]
    with figure(8.0) as page:
        draw_curves(page, [evaluated(label, [2.0, 1.0]) for label in labels])
        assert_on_page(drawn(page))


def test_lines_differ() -> None:
    styles = [tuple(line_style(index, 5).items()) for index in range(28)]
    assert len(set(styles)) == 28
    assert line_style(0, 1000)["marker"] is None


def test_shorten_and_columns() -> None:
    assert shorten("a" * 60) == "a" * 60
    assert shorten("a" * 40 + "b" * 40) == "a" * 30 + "…" + "b" * 30
    assert legend_columns(["x"]) == 2
    assert legend_columns(["x" * 60] * 5) == 1
    assert legend_columns(["x" * 10] * 6) == 4


@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_staleness(count: int) -> None:
    runs = [
        Run(Path("x"), f"job-{k}", {}, {"staleness_histogram": {"0": 5, "3": 15}}, [], [], [])
        for k in range(count)
    ]
    with figure(staleness_height(runs)) as page:
        draw_staleness(page, runs)
        drawn(page)
        shown = [axes for axes in page.axes if axes.get_visible()]
        assert [axes.get_title() for axes in shown] == [run.label for run in runs]
        heights = [patch.get_height() for patch in shown[0].patches]
        assert heights == [25.0, 75.0]
        assert "mean 2.25, max 3\n20 updates" in texts(page)
        assert {"staleness (versions)", "share of updates (%)"} <= set(texts(page))
        assert_on_page(page)


def test_staleness_of_thousands_of_workers_is_binned() -> None:
    counts = {str(k): 1 for k in range(4096)}
    few = Run(Path("x"), "few", {}, {"staleness_histogram": {"1": 4}}, [], [], [])
    many = Run(Path("x"), "many", {}, {"staleness_histogram": counts}, [], [], [])
    with figure(staleness_height([few, many])) as page:
        draw_staleness(page, [few, many])
        drawn(page)
        assert len(page.axes[1].patches) <= 40
        assert sum(patch.get_height() for patch in page.axes[1].patches) == pytest.approx(100)
        assert page.axes[0].get_xlim()[1] < 10


def test_only_asynchronous_runs_have_a_histogram(runs: dict[str, Path]) -> None:
    found = asynchronous(read_runs(list(runs.values())))
    assert [run.label for run in found] == ["asp-job", "wild-job", "going-job"]


@pytest.mark.parametrize("name", ["bsp", "asp", "going"])
def test_timeline(runs: dict[str, Path], name: str) -> None:
    (run,) = read_runs([runs[name]])
    with figure(timeline_height(run)) as page:
        draw_timeline(page, run)
        drawn(page)
        words = texts(page)
        (axes,) = page.axes
        assert [text.get_text() for text in axes.get_yticklabels()][:2] == [
            "coordinator",
            "worker 0",
        ]
        assert {"compute", "wait", "send", "receive", "update"} <= set(words)
        assert sum(word.endswith(" %") for word in words) == 1 + (run.workers or 0)
        assert "s)" in axes.get_xlabel()
        right = axes.get_window_extent().x1
        for text in axes.texts:
            if text.get_text().endswith("%"):
                assert text.get_window_extent().x0 > right
        assert_on_page(page)


@pytest.mark.parametrize(
    ("text", "limits"),
    [("1.0:2.5", (1.0, 2.5)), ("3.5:", (3.5, 5.0)), (":2", (0.0, 2.0)), (":", (0.0, 5.0))],
)
def test_timeline_of_a_window(tmp_path: Path, text: str, limits: tuple[float, float]) -> None:
    (run,) = read_runs([make_batch_run(tmp_path / "dane", [1.0] * 5, seconds=1.0)])
    with figure(timeline_height(run)) as page:
        draw_timeline(page, run, parse_window(text))
        (axes,) = drawn(page).axes
        assert axes.get_xlim() == pytest.approx(limits)
        for bars in axes.collections:
            for path in bars.get_paths():
                assert limits[0] - 1e-9 <= path.vertices[:, 0].min()
                assert path.vertices[:, 0].max() <= limits[1] + 1e-9


def test_timeline_of_a_short_window_is_in_milliseconds(tmp_path: Path) -> None:
    (run,) = read_runs([make_batch_run(tmp_path / "dane", [1.0] * 5, seconds=1.0)])
    with figure(timeline_height(run)) as page:
        draw_timeline(page, run, (2.0, 2.5))
        (axes,) = drawn(page).axes
        assert axes.get_xlim() == pytest.approx((0.0, 500.0))
        assert axes.get_xlabel() == "time after 2.000 s of the run (ms)"


def seams(page: Figure) -> list[float]:
    """Where slices touch, in the first lane."""
    lines = page.axes[0].collections
    found = next(line for line in lines if isinstance(line, LineCollection))
    return [float(segment[0][0]) for segment in found.get_segments()]


def test_slices_are_told_apart_where_there_is_room(tmp_path: Path) -> None:
    """Of two rounds of 1 s, with 0.2 s of waiting; 400 slices in the window are too thin."""
    for slices, expected in ((4, [0.2, 0.4, 0.6, 1.2, 1.4, 1.6]), (200, [])):
        path = make_batch_run(tmp_path / str(slices), [1.0] * 2, seconds=1.0, slices=slices)
        (run,) = read_runs([path])
        with figure(timeline_height(run)) as page:
            draw_timeline(page, run, (0.0, 2.0))
            assert seams(drawn(page)) == pytest.approx(expected)


def test_a_pause_between_slices_is_no_seam() -> None:
    spans = [("compute", 0.0, 0.3), ("send", 0.3, 0.302), ("compute", 0.302, 0.6)]
    spans += [("compute", 0.6001, 1.0)]
    events = [
        {"ph": "X", "name": kind, "tid": 1, "ts": 1e6 * start, "dur": 1e6 * (end - start)}
        for kind, start, end in spans
    ]
    run = Run(Path("x"), "job", {}, {}, [], [], events)
    with figure(timeline_height(run)) as page:
        draw_timeline(page, run, (0.0, 1.0))
        assert seams(drawn(page)) == pytest.approx([0.6001])


def test_timeline_of_many_ranks_with_unknown_kinds() -> None:
    events = [
        {"ph": "X", "name": "compute" if k % 2 else "dream", "tid": rank, "ts": k * 1e6, "dur": 9e5}
        for rank in range(300)
        for k in range(4)
    ]
    run = Run(Path("x"), "j" * 60, {"scheme": {"name": "bsp"}}, {}, [], [], events)
    assert timeline_height(run) < 11
    with figure(timeline_height(run)) as page:
        draw_timeline(page, run)
        words = texts(drawn(page))
        assert "j" * 60 + " (bsp), 33 of 300 ranks" in words
        assert "dream" in words
        assert_on_page(page)
        assert page.get_size_inches()[0] == WIDTH
