"""Dealing slices out and adding them up: whatever the timing and whoever dies, each counts once."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from psopt.crew.base import WorkerLost
from tests.schemes.slices import BATCH, WAYS, Bench, Part, bits, linear

POINTS = (0.5, -1.25, 0.5, 3.0)
SCALES = (1.0, 1e6, 1.0, 1e-6, 1e30, 1e-30, 0.0, 1.0, 1e12, 1e-20)


def alone(part_of: Callable[[float, int], Part], points: Any, **options: Any) -> list[Any]:
    """What one worker finds, each slice by itself."""
    bench = Bench(part_of, workers=1, way="one", **options)
    return [bits(bench.at(point)) for point in points]


class Random:
    """A course drawn from a seed: speeds, hiccups, latency, deaths."""

    def __init__(self, seed: int, *, mortal: bool = True) -> None:
        draw = random.Random(seed)
        self.slices, self.workers = draw.choice([1, 2, 7, 20, 48]), draw.choice([1, 2, 3, 5, 9, 40])
        self.speeds = [draw.choice([1.0, 1.0, 1.3, 4.0, 100.0]) for _ in range(self.workers)]
        self.latency = draw.choice([0.0, 1e-3, 0.1, 5.0])
        self.hiccup = draw.choice([0.0, 0.1])
        span = len(POINTS) * self.slices / self.workers
        doomed = (
            draw.sample(range(self.workers), draw.randint(0, self.workers - 1)) if mortal else []
        )
        self.deaths = {worker: draw.uniform(0.0, span) for worker in doomed}
        self._draw = draw

    def __call__(self, worker: int, samples: int) -> float:
        slow = 30.0 if self._draw.random() < self.hiccup else 1.0
        return (
            self.speeds[worker % self.workers]
            * slow
            * self._draw.uniform(0.7, 1.3)
            * samples
            / BATCH
        )

    def bench(self, part_of: Callable[[float, int], Part], way: str, **options: Any) -> Bench:
        return Bench(
            part_of,
            slices=self.slices,
            workers=self.workers,
            way=way,
            compute=self,
            latency=self.latency,
            deaths=self.deaths,
            **options,
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(15))
def test_any_course_gives_the_bits_of_one_worker(way: str, seed: int) -> None:
    course = Random(seed)
    bench = course.bench(linear, way)
    expected = alone(linear, POINTS, slices=course.slices)
    for point, right in zip(POINTS, expected, strict=True):
        evaluation = bench.at(point)
        bench.check(point, evaluation)
        assert bits(evaluation) == right
        if not course.deaths:
            bench.test()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("slices", [1, 2, 3, 17])
def test_sums_are_right(slices: int, dtype: torch.dtype) -> None:
    bench = Bench(linear, slices=slices, workers=3, dtype=dtype)
    for point in POINTS:
        evaluation = bench.at(point)
        exact, largest = bench.source.exact(point)
        precision = 2.0 ** -{torch.bfloat16: 8, torch.float32: 24, torch.float64: 51}[dtype]
        for value, right in zip(evaluation.gradient.tolist(), exact, strict=True):
            assert abs(value - right) <= max(abs(right), largest) * precision
        assert evaluation.gradient.dtype == dtype


@pytest.mark.parametrize("way", ["dynamic", "static"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_that_jump(way: str, dtype: torch.dtype) -> None:
    """Up and down by six and by sixty decades, and through zero."""

    def jumping(point: float, slice_: int) -> Part:
        loss, gradient = linear(0.0, slice_)
        return loss, gradient * SCALES[int(point)]

    points = range(len(SCALES))
    expected = alone(jumping, points, dtype=dtype)
    for seed in range(4):
        bench = Bench(jumping, workers=1 + seed, way=way, compute=Random(seed), dtype=dtype)
        for point, right in zip(points, expected, strict=True):
            evaluation = bench.at(point)
            bench.check(point, evaluation)
            assert bits(evaluation) == right


def test_a_steady_scale_is_found_at_once() -> None:
    """Entries that change by less than a thousand times are evaluated once."""
    bench = Bench(linear)
    for point in (0.0, 100.0, -0.01, 3.0):
        before = len(bench.source.done)
        bench.at(point)
        assert len(bench.source.done) == before + bench.source.slices


def test_all_gradients_zero_at_the_start() -> None:
    bench = Bench(lambda point, slice_: (1.0, torch.full((5,), point)), workers=3)
    for point in (0.0, 0.0, 1e-12, 1.0):
        evaluation = bench.at(point)
        assert torch.equal(evaluation.gradient, torch.full((5,), point))


def test_only_the_first_slice_is_zero() -> None:
    """Nothing is concluded from one slice."""

    def rest(point: float, slice_: int) -> Part:
        return 0.0, torch.full((5,), 3e-15 if slice_ else 0.0)

    bench = Bench(rest, slices=4)
    assert bench.at(0.0).gradient.tolist() == pytest.approx([3e-15 * 8 / 11] * 5, rel=1e-7)


BAD = {
    "loss": lambda loss, gradient: (math.nan, gradient),
    "infinite loss": lambda loss, gradient: (-math.inf, gradient),
    "entry": lambda loss, gradient: (loss, gradient.index_fill(0, torch.tensor(2), math.nan)),
    "infinite entry": lambda loss, gradient: (
        loss,
        gradient.index_fill(0, torch.tensor(4), -math.inf),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", BAD)
def test_slices_that_are_not_finite(way: str, kind: str) -> None:
    """One, or all of a worker, early or late; the evaluations before and after are whole."""
    for seed, bad in enumerate([{0}, {19}, {3, 4, 5, 6, 7, 8}, set(range(20)), {10, 19}]):

        def part_of(point: float, slice_: int, bad: set[int] = bad) -> Part:
            part = linear(point, slice_)
            return BAD[kind](*part) if point == 2.0 and slice_ in bad else part

        bench = Bench(part_of, workers=1 + 2 * seed, way=way, compute=Random(seed + 70))
        for point in (0.5, 2.0, 1.0, 2.0, 2.0, 0.5):
            evaluation = bench.at(point)
            if point != 2.0:
                bench.check(point, evaluation)
                continue
            assert math.isnan(evaluation.loss)
            assert not evaluation.tally.finite
            assert not evaluation.gradient.any()
            assert (evaluation.tally.correct, evaluation.tally.count) == (None, 59)
            assert bits(evaluation) == bits(Bench(part_of, way="one").at(2.0))


@pytest.mark.parametrize("way", WAYS)
def test_too_large_and_not_finite_at_once(way: str) -> None:
    """Not finite wins, whichever is seen first, and the scale stays as it was."""

    def part_of(point: float, slice_: int) -> Part:
        loss, gradient = linear(point, slice_)
        if point == 2.0:
            gradient = gradient * (1e25 if slice_ % 2 else math.nan if slice_ == 12 else 1.0)
        return loss, gradient

    for seed in range(8):
        bench = Bench(part_of, workers=1 + seed, way=way, compute=Random(seed + 30))
        bench.at(1.0)
        before = bench.state.largest
        assert not bench.at(2.0).tally.finite
        assert bench.state.largest == before
        bench.check(0.5, bench.at(0.5))


@pytest.mark.parametrize("way", WAYS)
def test_all_workers_die(way: str) -> None:
    bench = Bench(linear, workers=3, way=way, deaths={0: 2.0, 1: 3.5, 2: 5.0})
    with pytest.raises(WorkerLost, match="resume from the last checkpoint"):
        bench.at(1.0)


@pytest.mark.parametrize("way", ["dynamic", "static"])
@pytest.mark.parametrize("at", [k / 3 + 0.1 for k in range(27)])
def test_death_at_any_moment(way: str, at: float) -> None:
    """Before, between and after hand-overs, in the tail, and between two evaluations."""
    bench = Bench(linear, workers=3, way=way, deaths={1: at}, compute=steady({}))
    expected = alone(linear, POINTS)
    assert [bits(bench.at(point)) for point in POINTS] == expected


def steady(slow: dict[int, float]) -> Callable[[int, int], float]:
    return lambda worker, samples: slow.get(worker, 1.0) * samples / BATCH


def seconds(bench: Bench, evaluations: int = 6) -> float:
    """An evaluation's, on the average."""
    for k in range(evaluations):
        bench.at(float(k))
    return bench.crew.now() / evaluations


@pytest.mark.parametrize("slices", [128, 300])
@pytest.mark.parametrize("slow", [4.0, 100.0])
def test_nobody_waits_for_a_straggler(slow: float, slices: int) -> None:
    """4 workers, one of them slow: within a tenth of all work at the speed of all together."""
    options: dict[str, Any] = {"slices": slices, "workers": 4, "compute": steady({2: slow})}
    ideal = slices / (3 + 1 / slow)
    assert seconds(Bench(linear, **options)) <= 1.1 * ideal
    assert seconds(Bench(linear, way="static", **options)) >= 2.5 * ideal


def test_a_worker_that_becomes_slow_does_not_hold_the_others_up() -> None:
    """Its pace is known by then, from a time when it was as fast as the others."""
    slow = {2: 1.0}
    bench = Bench(linear, slices=128, workers=4, compute=steady(slow))
    seconds(bench)
    slow[2], before = 4.0, bench.crew.now()
    seconds(bench)
    assert bench.crew.now() - before <= 6 * 1.15 * 128 / 3.25


def test_messages_that_cost_more_than_the_work() -> None:
    """Shares instead of slices: no more than a few messages a worker."""
    options: dict[str, Any] = {"slices": 128, "workers": 4, "compute": steady({}), "latency": 50.0}
    assert seconds(Bench(linear, **options)) <= 1.6 * seconds(
        Bench(linear, way="static", **options)
    )


def test_no_more_is_computed_than_needed() -> None:
    """Among equal workers, hardly a copy."""
    bench = Bench(linear, slices=128, workers=4, compute=Random(3, mortal=False))
    bench.crew._post._compute = steady({})
    seconds(bench)
    assert len(bench.source.done) <= 6 * 128 * 1.03
