from __future__ import annotations

from pathlib import Path

import pytest

from psopt.record import Timeline, read_timeline
from psopt.report.lanes import Lane, choose, lanes, waiting_share, window
from psopt.report.runs import read_runs


def test_lanes_carry_names_and_shares(tmp_path: Path) -> None:
    with Timeline(tmp_path / "t.json", 100) as timeline:
        timeline.name(2, "worker 1 on b")
        timeline.add(2, "wait", 3.0, 4.0)
        timeline.add(2, "compute", 0.0, 3.0)
        timeline.add(0, "evaluate", 0.0, 2.0)
        timeline.add(0, "wait", 2.0, 4.0)
        timeline.add(0, "checkpoint", 4.0, 9.0)
    found = lanes(read_timeline(tmp_path / "t.json"))
    assert [(lane.rank, lane.label) for lane in found] == [(0, "coordinator"), (2, "worker 1 on b")]
    assert [lane.waiting for lane in found] == [1.0, 0.25]
    assert found[1].spans[0][0] == "compute"
    assert waiting_share(found) == 0.5


def test_share_of_nothing_is_unknown() -> None:
    assert waiting_share([]) is None
    assert Lane(0, "coordinator", [("evaluate", 0.0, 1.0)]).waiting is None


def test_few_lanes_are_all_shown() -> None:
    every = [Lane(rank, str(rank)) for rank in range(5)]
    assert choose(every, 5) == every


def test_choice_keeps_coordinator_and_extremes() -> None:
    every = [Lane(0, "coordinator", [("wait", 0, 1)])]
    every += [
        Lane(rank, str(rank), [("wait", 0, (rank * 37) % 101), ("compute", 200, 300)])
        for rank in range(1, 101)
    ]
    shown = choose(every, 10)
    assert len(shown) == 10
    assert [lane.rank for lane in shown] == sorted(lane.rank for lane in shown)
    assert shown[0].rank == 0
    shares = [lane.waiting or 0 for lane in every[1:]]
    for extreme in (min(shares), max(shares)):
        assert extreme in [lane.waiting for lane in shown]


@pytest.mark.parametrize("name", ["bsp", "asp"])
def test_window_shows_several_rounds_and_no_evaluation(runs: dict[str, Path], name: str) -> None:
    (run,) = read_runs([runs[name]])
    every = lanes(run.events)
    start, end = window(every)
    assert every[0].spans[0][1] <= start < end
    slowest = [a for a, b in every[2].of("compute") if start < b and a < end]
    assert 2 <= len(slowest) <= 30
    paused = [a for a, b in every[0].of("evaluate") if start < b and a < end]
    assert len(paused) <= 1
    if name == "bsp":
        assert any(kind == "wait" and start < a < end for kind, a, _ in every[1].spans)


def test_window_of_one_span_is_the_span() -> None:
    assert window([Lane(0, "coordinator", [("update", 1.0, 2.0)])]) == (1.0, 2.0)


def test_window_is_typical() -> None:
    """Nine tenths of this run wait; a window of pure computing would be a lie."""
    spans = [("compute", 0.1 * k, 0.1 * k + 0.1) for k in range(10)]
    spans += [("compute", 1.0 + k, 1.1 + k) for k in range(90)]
    start, _ = window([Lane(1, "worker 0", spans)])
    assert start > 1.0
