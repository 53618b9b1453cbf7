"""The gap figure: the values of its lines, and what they are measured from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from psopt.report import ReportError
from psopt.report.gap import draw_gap, gap_remarks, references
from psopt.report.runs import Run, read_runs
from psopt.report.style import figure, line_style
from tests.report.synthetic import make_batch_run
from tests.report.test_figures import assert_on_page, drawn, texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SQUARES = "model: {name: softmax}\nloss: {name: mse}\n"


@contextmanager
def gap(runs: Sequence[Run], optimum: float | None = None) -> Iterator[Figure]:
    with figure(3.0) as page:
        draw_gap(page, runs, optimum)
        yield drawn(page)
        assert_on_page(page)


def read(folder: Path, *objectives: Sequence[float | None]) -> list[Run]:
    """Runs of one problem called a, b, ..."""
    names = "abcdefgh"[: len(objectives)]
    return read_runs(
        [make_batch_run(folder / name, o) for name, o in zip(names, objectives, strict=True)]
    )


def ordinates(page: Figure) -> list[list[float]]:
    """The values of the lines of the first plot, after checking that all plots have the same."""
    first, *others = [[list(line.get_ydata()) for line in axes.lines] for axes in page.axes]
    assert others == [first] * 2
    return first


def test_lines_against_rounds_passes_and_seconds(tmp_path: Path) -> None:
    path = make_batch_run(tmp_path / "dane", [5.0, 3.0], start=9.0, passes=2.5, seconds=0.25)
    with gap(read_runs([path]), optimum=1.0) as page:
        abscissas = [list(axes.lines[0].get_xdata()) for axes in page.axes]
        assert abscissas == [[0.0, 1.0, 2.0], [0.0, 2.5, 5.0], [0.0, 0.25, 0.5]]
        assert ordinates(page) == [[8.0, 4.0, 2.0]]
        words = texts(page)
        assert {"rounds", "gradient passes", "training time (s)", "dane"} <= set(words)
        assert [axes.get_yscale() for axes in page.axes] == ["log"] * 3
        assert page.axes[0].get_ylim() == page.axes[2].get_ylim()
        assert page.axes[0].get_ylabel() == "objective gap F - F*"


def test_without_start_row_and_with_unknown_objectives(tmp_path: Path) -> None:
    with gap(read(tmp_path, [None, 4.0, None, 2.0]), optimum=0.0) as page:
        assert list(page.axes[0].lines[0].get_xdata()) == [2.0, 4.0]
        assert ordinates(page) == [[4.0, 2.0]]


def test_without_optimum_the_lowest_of_the_problem_is_taken(tmp_path: Path) -> None:
    runs = read(tmp_path, [4.0, 2.0], [3.0, 1.0])
    other = make_batch_run(tmp_path / "other", [0.75, 0.5], config=SQUARES)
    runs += read_runs([other])
    assert references(runs, None) == {"a": 1.0, "b": 1.0, "other": 0.5}
    with gap(runs) as page:
        assert ordinates(page) == [[3.0, 1.0], [2.0], [0.25]]
        assert page.axes[0].get_ylabel() == "F - lowest objective seen"
    assert gap_remarks(runs[:2], None) == []
    assert "model, data or loss differ" in gap_remarks(runs, None)[0]


def test_what_leaves_the_objective_as_it_is_makes_no_other_problem(tmp_path: Path) -> None:
    texts_of_data = (
        "{path: /a.h5, cache_bytes: 1}",
        "{cache_bytes: 2, path: /a.h5, test_limit: 9}",
        "{path: /b.h5, cache_bytes: 1}",
    )
    runs = read_runs(
        [
            make_batch_run(tmp_path / f"r{k}", [5.0, 3.0 - k], config=f"data: {text}\n")
            for k, text in enumerate(texts_of_data)
        ]
    )
    assert references(runs, None) == {"r0": 2.0, "r1": 2.0, "r2": 1.0}


def test_one_optimum_does_not_fit_several_problems(tmp_path: Path) -> None:
    runs = read(tmp_path, [2.0], [3.0])
    runs += read_runs([make_batch_run(tmp_path / "other", [0.5], config=SQUARES)])
    with pytest.raises(ReportError, match=r"a, b; other\. Report each of these 2 groups"):
        references(runs, 0.1)
    assert references(runs[:2], 0.1) == {"a": 0.1, "b": 0.1}


@pytest.mark.parametrize("optimum", [float("nan"), float("inf")])
def test_optimum_is_a_number(tmp_path: Path, optimum: float) -> None:
    with pytest.raises(ReportError, match="not a finite number"):
        references(read(tmp_path, [2.0]), optimum)


def test_points_at_or_below_the_optimum_are_left_out_and_said(tmp_path: Path) -> None:
    runs = read(tmp_path, [4.0, 1.0, 2.0, 0.5], [3.0, 1.5])
    with gap(runs, optimum=1.0) as page:
        assert ordinates(page) == [[3.0, 1.0], [2.0, 0.5]]
        assert list(page.axes[0].lines[0].get_xdata()) == [1.0, 3.0]
    (remark,) = gap_remarks(runs, 1.0)
    assert remark.startswith("a: its lowest objective, 0.5, is below --optimum 1;")
    (remark,) = gap_remarks(read(tmp_path / "near", [1.0]), 1.0 + 2**-52)
    assert "objective, 1.0, is below --optimum 1.0000000000000002;" in remark


def test_nothing_above_the_optimum(tmp_path: Path) -> None:
    with gap(read(tmp_path, [2.0])) as page:
        assert texts(page).count("no gap above 0") == 3


def test_tiny_and_constant_gaps(tmp_path: Path) -> None:
    for objectives in ([1.0 + 2**-52, 1.0], [2.0, 2.0], [1e-190, 1e190]):
        with gap(read(tmp_path / str(objectives), objectives), optimum=0.0) as page:
            assert ordinates(page) == [objectives]


def test_run_that_diverges_leaves_the_axes_to_the_others(tmp_path: Path) -> None:
    runs = read(tmp_path, [2.0, 1e-6], [3.0, 1e9, 1e200, None])
    with gap(runs, optimum=0.0) as page:
        assert ordinates(page) == [[2.0, 1e-6], [3.0, 1e9, 1e200]]
        low, high = page.axes[0].get_ylim()
        assert 1e-7 < low < 1e-6
        assert 30 < high < 100
        assert texts(page).count("beyond 30 not shown") == 3
        assert {"10⁻⁵", "10⁻¹"} <= set(texts(page))


def test_colours_are_those_of_the_other_figures(tmp_path: Path) -> None:
    """A run without objectives has no line, and the ones after it keep their colours."""
    with gap(read(tmp_path, [None], [3.0, 1.0], [2.0, 1.5]), optimum=0.0) as page:
        lines = page.axes[0].lines
        assert [line.get_label() for line in lines] == ["b", "c"]
        assert [line.get_color() for line in lines] == [line_style(k, 2)["color"] for k in (1, 2)]


def test_a_run_without_objectives_is_named(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, [2.0, 1.0])
    bare = Run(Path("x"), "asp-job", {}, {}, [], [], [])
    for optimum in (None, 0.5):
        said = gap_remarks([batch, bare], optimum)
        assert said == ["gap: the objective was not measured in asp-job"]
    assert gap_remarks([bare], None) == []
