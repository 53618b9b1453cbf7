"""Time and speed-up against workers, in families of what else is swept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from psopt.record import State, SweepEntry
from psopt.report.style import figure
from psopt.report.sweep import Sweep, SweptRun
from psopt.report.sweep_speed import draw_scalings, measure_of, scalings


def sweep_of(folder: Path, times: Mapping[tuple[str, int, int], float | None]) -> Sweep:
    """Runs by scheme, workers and seed, with their seconds to the target."""
    runs = []
    for (scheme, workers, seed), seconds in times.items():
        assignment = {"scheme.name": scheme, "cluster.workers": workers, "seed": seed}
        summary = {"status": "completed", "seconds": 9.0, "seconds_to_target": seconds}
        entry = SweepEntry("0" * 16, assignment)
        runs.append(SweptRun(entry, folder, State.DONE, "", summary, []))
    return Sweep("x", folder, ("scheme.name", "cluster.workers", "seed"), tuple(runs))


def test_means_over_seeds(tmp_path: Path) -> None:
    times = {("bsp", 4, 1): 2.0, ("bsp", 4, 2): 4.0, ("bsp", 1, 1): 8.0, ("bsp", 1, 2): 10.0}
    (found,) = scalings(sweep_of(tmp_path, {**times, ("asp", 1, 1): 1.0}))
    assert (found.label, found.workers) == ("scheme.name=bsp", (1, 4))
    assert (found.seconds, found.speedup) == ((9.0, 3.0), (1.0, 3.0))


def test_who_misses_the_target_is_left_out(tmp_path: Path) -> None:
    times = {("bsp", 1, 1): 8.0, ("bsp", 2, 1): 4.0, ("bsp", 4, 1): None}
    sweep = sweep_of(tmp_path, times)
    assert measure_of(sweep).name == "seconds_to_target"
    assert [each.workers for each in scalings(sweep)] == [(1, 2)]


def test_all_of_the_training_where_there_is_no_target(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, {("bsp", 2, 1): None, ("bsp", 8, 1): None})
    assert measure_of(sweep).name == "seconds"
    (found,) = scalings(sweep)
    assert (found.workers, found.speedup) == ((2, 8), (1.0, 1.0))


def test_workers_that_are_not_swept(tmp_path: Path) -> None:
    assert scalings(Sweep("x", tmp_path, ("seed",), ())) == []


def test_figure(tmp_path: Path) -> None:
    times = {("bsp", 1, 1): 8.0, ("bsp", 2, 1): 5.0, ("asp", 1, 1): 8.0, ("asp", 8, 1): 1.0}
    sweep = sweep_of(tmp_path, times)
    with figure(2.7) as drawn:
        draw_scalings(drawn, measure_of(sweep), scalings(sweep))
        time, speed = drawn.axes
        assert [line.get_label() for line in time.lines] == ["scheme.name=bsp", "scheme.name=asp"]
        assert [[*line.get_ydata()] for line in speed.lines] == [[1, 1.6], [1, 8], [1, 2, 8]]
        assert speed.get_ylabel() == "speed-up over 1 worker"
