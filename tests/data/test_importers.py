"""What every importer keeps: origin, repeatability, no overwriting, clear refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from psopt.data import IMPORTERS, DataError, import_dataset, info, open_dataset
from tests.data.makers import MAKERS, load


@pytest.fixture(params=list(IMPORTERS))
def case(request: pytest.FixtureRequest, tmp_path: Path, mnist: Path) -> tuple[str, Path]:
    """(format, a small valid source)."""
    name = request.param
    if name == "mnist":
        return name, mnist
    suffix = {"npz": ".npz", "libsvm": ".txt"}.get(name, "")
    return name, MAKERS[name](tmp_path / f"source (of '{name}'){suffix}")


def test_an_import_is_a_dataset_with_its_origin(case: tuple[str, Path], tmp_path: Path) -> None:
    name, source = case
    out = tmp_path / 'out "1" (copy).h5'
    assert import_dataset(name, source, str(out), licence="CC0") == out
    data = open_dataset(out, cache_bytes=2**31)
    assert data.classes is not None
    assert data.attributes["licence"] == "CC0"
    assert data.attributes["created_by"].startswith("psopt ")
    assert data.attributes["source"]
    x, y = data.train.range(0, len(data.train))
    channels = x.transpose(0, 1).flatten(1).double()
    assert channels.mean(dim=1).abs().max() < 1e-4
    deviation = channels.std(dim=1, correction=0)
    assert ((deviation - 1).abs() < 1e-3).logical_or(deviation < 1e-6).all()
    assert len(y) == len(x)
    assert f"{len(data.train)} samples" in info(out)


def test_an_import_is_repeatable(case: tuple[str, Path], tmp_path: Path) -> None:
    name, source = case
    one, two = (load(import_dataset(name, source, tmp_path / f"{n}.h5")) for n in "ab")
    assert all(np.array_equal(one[0][key], two[0][key]) for key in one[0])
    assert one[1].keys() == two[1].keys()


def test_nothing_is_overwritten(case: tuple[str, Path], tmp_path: Path) -> None:
    name, source = case
    out = tmp_path / "out.h5"
    out.write_text("precious")
    with pytest.raises(DataError, match="exists; remove it first"):
        import_dataset(name, source, out)
    assert out.read_text() == "precious"


def test_a_missing_source(case: tuple[str, Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone: no such file or directory"):
        import_dataset(case[0], tmp_path / "gone", tmp_path / "out.h5")


def test_a_source_of_another_kind(case: tuple[str, Path], tmp_path: Path) -> None:
    name, source = case
    other = tmp_path / "other"
    if source.is_dir():
        other.write_text("a file")
    else:
        other.mkdir()
    out = tmp_path / "out.h5"
    with pytest.raises(DataError, match="other"):
        import_dataset(name, other, out)
    assert not out.exists()


def test_an_unknown_option(case: tuple[str, Path], tmp_path: Path) -> None:
    name, source = case
    with pytest.raises(DataError, match=f"format {name}: unknown option 'colour'; (valid|it)"):
        import_dataset(name, source, tmp_path / "out.h5", colour=True)


def test_unknown_format_and_near_option(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown format 'minst'; did you mean 'mnist'"):
        import_dataset("minst", tmp_path, tmp_path / "out.h5")
    with pytest.raises(DataError, match="did you mean 'test_fraction'"):
        import_dataset("npz", tmp_path, tmp_path / "out.h5", test_frac=0.1)


def test_no_output_directory(mnist: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such directory; make it first"):
        import_dataset("mnist", mnist, tmp_path / "no" / "out.h5")
