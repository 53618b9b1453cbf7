"""Files that are damaged or exchanged, at random: each is found out, and an older one is used."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from psopt.record import CheckpointError, CheckpointStore

SEEDS = range(200)
"""Each is one corruption, of the kinds below in turn."""


def tree(step: int) -> dict[str, Any]:
    return {"parameters": {"w": torch.full((700,), float(step)), "b": torch.ones(3)}, "step": step}


class Runs:
    """A run with checkpoints 1 and 2, another run with the same steps, and what was warned of."""

    def __init__(self, folder: Path) -> None:
        self.warnings: list[str] = []
        self.store = CheckpointStore(folder / "one", 3, self.warnings.append, run="one")
        self.other = CheckpointStore(folder / "two", 3, run="two")
        for store in (self.store, self.other):
            for step in (1, 2):
                store.save(step, tree(step))
        self.older, self.newest = self.store.paths()
        self.content = self.newest.read_bytes()
        self.size = len(self.content)


def truncated(runs: Runs, draw: random.Random) -> None:
    runs.newest.write_bytes(runs.content[: draw.randrange(runs.size)])


def flipped(runs: Runs, draw: random.Random) -> None:
    content = bytearray(runs.content)
    for _ in range(draw.choice((1, 1, 1, 2, 9))):
        content[draw.randrange(draw.choice((512, runs.size)))] ^= 1 << draw.randrange(8)
    runs.newest.write_bytes(content)


def zeroed(runs: Runs, draw: random.Random) -> None:
    start = draw.randrange(runs.size)
    while not any(runs.content[start : start + 16]):
        start = draw.randrange(runs.size)
    end = min(runs.size, start + draw.randrange(16, runs.size))
    runs.newest.write_bytes(runs.content[:start] + bytes(end - start) + runs.content[end:])


def appended(runs: Runs, draw: random.Random) -> None:
    more = draw.choice((bytes(draw.randrange(1, 2000)), draw.randbytes(1), runs.content))
    runs.newest.write_bytes(runs.content + more)


def moved(runs: Runs, draw: random.Random) -> None:
    """A part of the file is where another one should be."""
    length = draw.randrange(64, 1024)
    while True:
        start, end = (draw.randrange(runs.size - length) for _ in range(2))
        content = bytearray(runs.content)
        content[start : start + length] = runs.content[end : end + length]
        if content != runs.content:
            runs.newest.write_bytes(content)
            return


def of_another_step(runs: Runs, draw: random.Random) -> None:
    number = draw.randrange(3, 10**12)
    shutil.copy(draw.choice((runs.older, runs.newest)), runs.newest.with_stem(f"step-{number:012}"))
    runs.newest.unlink()


def of_another_run(runs: Runs, draw: random.Random) -> None:
    shutil.copy(runs.other.paths()[1], runs.newest)


KINDS: tuple[Callable[[Runs, random.Random], None], ...] = (
    *(truncated, flipped, zeroed, appended, moved, of_another_step, of_another_run),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_is_found_and_the_older_one_used(runs: Runs, seed: int) -> None:
    runs.warnings.clear()
    damage = KINDS[seed % len(KINDS)]
    damage(runs, random.Random(seed))
    latest = runs.store.load_latest()
    for path in runs.store.paths():
        if path != runs.older:
            path.unlink()
    runs.newest.write_bytes(runs.content)
    assert latest is not None
    assert latest[0] == latest[1]["step"] == 1
    (warning,) = runs.warnings
    assert warning.endswith("it is skipped")
    assert ("of another run (two; this one is one)" in warning) == (damage is of_another_run)
    assert ("under another's name" in warning) == (damage is of_another_step)


def test_undamaged(runs: Runs) -> None:
    """What the corruptions began with, and a name without a step."""
    latest = runs.store.load_latest()
    assert latest is not None
    assert latest[0] == 2
    kept = shutil.copy(runs.newest, runs.newest.with_name("best.h5"))
    assert runs.store.load(kept)["step"] == 2
    kept.unlink()


def test_a_moved_directory_is_the_same_run(tmp_path: Path) -> None:
    CheckpointStore(tmp_path / "here", 3, run="one").save(1, tree(1))
    shutil.move(tmp_path / "here", tmp_path / "there")
    for run in ("one", ""):
        assert CheckpointStore(tmp_path / "there", 3, run=run).load_latest() is not None
    stranger = CheckpointStore(tmp_path / "there", 3, run="two")
    with pytest.raises(CheckpointError, match="of another run"):
        stranger.load(stranger.paths()[0])


def test_checkpoints_without_a_run_are_anybodys(tmp_path: Path) -> None:
    CheckpointStore(tmp_path, 3).save(1, tree(1))
    assert CheckpointStore(tmp_path, 3, run="two").load_latest() is not None
