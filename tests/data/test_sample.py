"""The packaged digits, the script that makes them, and `info`."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from psopt.data import check, info, open_dataset
from psopt.data.layout import resolve
from psopt.data.make_sample import main, make_sample


def test_the_packaged_digits() -> None:
    assert resolve("sample").stat().st_size < 1_500_000
    data = open_dataset("sample", cache_bytes=2**31)
    check(data, 10)
    assert (len(data.train), len(data.test)) == (4000, 1000)
    assert data.input_shape == (1, 28, 28)
    assert data.classes == tuple("0123456789")
    for split, count in ((data.train, 400), (data.test, 100)):
        assert torch.bincount(split.y).tolist() == [count] * 10
        assert torch.bincount(split.y[: len(split) // 4]).min() > count / 8  # mixed
    assert data.attributes["licence"] == "CC BY-SA 3.0"
    for name in ("MNIST", "LeCun", "Cortes", "Burges"):
        assert name in data.attributes["source"]
    x, _ = data.train.range(0, 4000)
    assert abs(float(x.double().mean())) < 1e-4
    assert abs(float(x.double().std()) - 1) < 1e-3


def test_a_digit_is_bright_on_black_and_upright() -> None:
    """Guards against a transposed or inverted set: a 1 is taller than wide, on a black border."""
    data = open_dataset("sample", cache_bytes=2**31, normalise=False)
    x, y = data.train.range(0, 4000)
    assert x[:, :, 0].max() < 30
    ones = x[y == 1].mean(dim=(0, 1)) > 60
    assert ones.any(dim=1).sum() > 1.5 * ones.any(dim=0).sum()


def test_the_script(mnist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sample.h5"
    assert main([str(mnist), str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    data = open_dataset(out, cache_bytes=2**31)
    assert (len(data.train), len(data.test)) == (90, 40)  # no more than there are
    with h5py.File(out) as file:
        assert file["train/x"].compression == "gzip"
        assert file["train/x"].shuffle
        rows = {x.tobytes() for x in file["train/x"][()]}
    source = (mnist / "train-images-idx3-ubyte").read_bytes()[16:]
    assert rows == {source[at : at + 784] for at in range(0, len(source), 784)}


def test_the_script_chooses_evenly_and_repeatably(mnist: Path, tmp_path: Path) -> None:
    paths = [make_sample(mnist, tmp_path / f"{name}.h5", train=50, test=13) for name in "ab"]
    one, two = (open_dataset(path, cache_bytes=2**31) for path in paths)
    assert torch.bincount(one.train.y).tolist() == [5] * 10
    assert sorted(torch.bincount(one.test.y).tolist()) == [1] * 7 + [2] * 3
    assert torch.equal(one.train.range(0, 50)[0], two.train.range(0, 50)[0])


def test_the_script_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "MNIST_DIR OUT" in capsys.readouterr().err


def test_info_of_the_packaged_digits() -> None:
    lines = info("sample").splitlines()
    assert lines[1:5] == [
        "train       4000 samples of 1x28x28 uint8",
        "test        1000 samples of 1x28x28 uint8",
        "outputs     10 classes",
        "            0: 400 train, 100 test",
    ]
    assert lines[-2] == "licence     CC BY-SA 3.0"


def test_info_shortens_long_lists(tmp_path: Path) -> None:
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as file:
        for split in ("train", "test"):
            file[f"{split}/x"] = np.zeros((50, 4), np.float32)
            file[f"{split}/y"] = np.arange(50)
    text = info(path)
    assert "19: 1 train, 1 test" in text
    assert "... and 30 more" in text
    assert "licence     unknown" in text
