"""Which arrays can be read; `tests.hostile` has those that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from psopt.data.errors import DataError
from psopt.data.storage import check_storage

NOISE = np.random.default_rng(3).integers(0, 256, (50, 28, 28), np.uint8)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunks": (7, 28, 28)},
        {"chunks": (60, 28, 28), "maxshape": (None, 28, 28)},
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True, "fletcher32": True, "chunks": (7, 5, 28)},
        {"fletcher32": True},
        {"shuffle": True},
    ],
)
@pytest.mark.parametrize("values", [NOISE, np.zeros_like(NOISE), NOISE.astype(np.float64)])
def test_whatever_is_written_whole(options: dict[str, Any], values: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, **options)
    with h5py.File(tmp_path / "a.h5") as file:
        check_storage(file["x"], "x")


@pytest.mark.parametrize(
    "options", [{}, {"chunks": (10,)}, {"chunks": (10,), "compression": "gzip"}]
)
def test_a_part_that_was_never_written(options: dict[str, Any], tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("x", (100,), np.float32, **options)
        if "chunks" in options:
            made[:10] = 1
    with (
        h5py.File(tmp_path / "a.h5") as file,
        pytest.raises(DataError, match=r"x: (claims 400 bytes|1 of its 10 pieces)"),
    ):
        check_storage(file["x"], "x")


def test_a_damaged_piece(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("x", (9,), np.uint8, chunks=(9,), compression="gzip")
        made.id.write_direct_chunk((0,), b"no deflate")
    with (
        h5py.File(tmp_path / "a.h5") as file,
        pytest.raises(DataError, match=r"x: the piece at \(0,\) does not unpack to the 9 bytes"),
    ):
        check_storage(file["x"], "x")
