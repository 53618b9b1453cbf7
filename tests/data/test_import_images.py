"""Importing folders of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from psopt.data import DataError, import_dataset
from tests.data.makers import images, load


def test_images_values(tmp_path: Path) -> None:
    source = images(tmp_path / "source")
    (source / "train" / "cats" / "notes.txt").write_text("no image")
    (source / "train" / ".cache").mkdir()
    arrays, attributes = load(import_dataset("images", source, tmp_path / "out.h5"))
    assert arrays["train/x"].shape == (12, 3, 5, 7)
    assert list(attributes["classes"]) == ["cats", "dogs"]
    assert sorted(arrays["train/y"]) == [0] * 6 + [1] * 6
    assert arrays["train/y"].tolist() != sorted(arrays["train/y"])  # mixed
    files = sorted((source / "train" / "dogs").iterdir())
    want = {np.asarray(Image.open(path)).transpose(2, 0, 1).tobytes() for path in files}
    assert {x.tobytes() for x in arrays["train/x"][arrays["train/y"] == 1]} == want


@pytest.mark.parametrize(("size", "want"), [(4, (4, 4)), ((3, 6), (3, 6))])
def test_images_resized_and_grey(tmp_path: Path, size: Any, want: tuple[int, int]) -> None:
    source = images(tmp_path / "source")
    Image.new("L", (40, 30)).save(source / "train" / "cats" / "other.jpg")
    with pytest.raises(DataError, match=r"pixels, others are .*; give the size to resize to"):
        import_dataset("images", source, tmp_path / "out.h5")
    out = import_dataset("images", source, tmp_path / "out.h5", size=size, channels=1)
    assert load(out)[0]["train/x"].shape == (13, 1, *want)


def test_images_split_by_fraction(tmp_path: Path) -> None:
    source = images(tmp_path / "source") / "train"
    arrays, _ = load(import_dataset("images", source, tmp_path / "out.h5", test_fraction=0.25))
    assert (len(arrays["train/x"]), len(arrays["test/x"])) == (9, 3)


def test_wrong_images(tmp_path: Path) -> None:
    def refused(message: str, **options: Any) -> None:
        with pytest.raises(DataError, match=message):
            import_dataset("images", source, tmp_path / "out.h5", **options)

    source = tmp_path / "source"
    source.mkdir()
    refused("holds no class folders")
    (source / "cats").mkdir()
    refused(r"holds no images \(\.bmp")
    images(source)
    refused("channels must be 1 or 3", channels=4)
    refused("size must be positive", size=0)
    refused("test set of its own", test_fraction=0.5)
    (source / "test" / "emus").mkdir()
    refused(r"class 'emus' is not in .*train")
    (source / "test" / "emus").rmdir()
    (source / "train" / "cats" / "3.png").write_bytes(b"\x89PNG\r\n\x1a\n cut")
    refused(r"3\.png: cannot be read as an image")
    (source / "test").rename(source / "trial")
    refused("has train/, but none of test, val")
