"""Folders of images, one folder a class: DIR/train/CLASS/*.png and DIR/test/CLASS/*.png."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from psopt.data.errors import DataError
from psopt.data.importers.table import Imported, Part
from psopt.data.importers.targets import choose_test_rows
from psopt.reading import open_regular

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
# By name, for Pillow goes by the content: a .png may be PostScript, which Ghostscript would run.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
_MOST_PIXELS = 2**26
_TEST_NAMES = ("test", "val", "valid", "validation")


def read_images(
    source: Path,
    *,
    size: int | tuple[int, int] | None = None,
    channels: Literal[1, 3] = 3,
    test_fraction: float | None = None,
    seed: int = 1,
) -> Imported:
    """Reads class folders in train/ and test/ (or val/), or in `source` itself. Needs Pillow.

    Samples are written in a seeded random order, so that the first rows are of all classes.

    Args:
        source: the directory.
        size: height and width in pixels to resize to (one number for a square); None when all
            images are of one size already.
        channels: 3 for colour, 1 for grey.
        test_fraction: without test/, the share set apart, in (0, 1), 0.2 when None.
        seed: of the order, and of the choice of test samples.

    Raises:
        DataError: no images, one is damaged or of another size, or Pillow is not installed.
    """
    if channels not in (1, 3):
        raise DataError(f"{source}: channels must be 1 or 3, not {channels}")
    height_width = (size, size) if isinstance(size, int) else size
    if height_width is not None and (len(height_width) != 2 or min(height_width) < 1):
        raise DataError(f"{source}: size must be positive pixels, not {size}")
    train, test, classes = _list(source, test_fraction, seed)
    if height_width is None:
        height_width = _decode(train[0][0], channels, None).shape[1:]
    generator = np.random.Generator(np.random.PCG64(seed))
    parts = []
    for files in (train, test):
        chosen = [files[row] for row in generator.permutation(len(files))]
        x = _ImageRows([path for path, _ in chosen], height_width, channels, resize=bool(size))
        parts.append(Part(x, np.array([label for _, label in chosen], np.int64)))
    return Imported(parts[0], parts[1], classes, source=f"image folders of {source.name}")


_Labelled = list[tuple[Path, int]]


def _list(
    source: Path, test_fraction: float | None, seed: int
) -> tuple[_Labelled, _Labelled, tuple[str, ...]]:
    """Files with their labels, of both splits, and the class names."""
    if (source / "train").is_dir():
        if test_fraction is not None:
            raise DataError(f"{source}: has a test set of its own; leave out the test fraction")
        folders = [source / name for name in _TEST_NAMES if (source / name).is_dir()]
        if not folders:
            raise DataError(f"{source}: has train/, but none of {', '.join(_TEST_NAMES)}")
        classes = _classes(source / "train")
        if foreign := sorted(set(_classes(folders[0])) - set(classes)):
            raise DataError(f"{folders[0]}: class {foreign[0]!r} is not in {source / 'train'}")
        return _files(source / "train", classes), _files(folders[0], classes), classes
    classes = _classes(source)
    files = _files(source, classes)
    train, test = choose_test_rows(len(files), test_fraction, seed, str(source))
    return [files[row] for row in train], [files[row] for row in test], classes


def _classes(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        raise DataError(f"{folder}: is no directory; name the one that holds the class folders")
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not names:
        raise DataError(f"{folder}: holds no class folders")
    return tuple(names)


def _files(folder: Path, classes: Sequence[str]) -> _Labelled:
    files = [
        (path, label)
        for label, name in enumerate(classes)
        if (folder / name).is_dir()
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")
    ]
    if not files:
        raise DataError(f"{folder}: holds no images ({', '.join(sorted(_SUFFIXES))})")
    return files


class _ImageRows:
    """Images decoded window by window (a `RowSource`): (samples, channels, height, width) uint8."""

    def __init__(
        self, paths: list[Path], size: tuple[int, ...], channels: int, *, resize: bool
    ) -> None:
        self._paths, self._channels = paths, channels
        self._size = size if resize else None
        self.shape = (len(paths), channels, *size)
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        images = []
        for path in self._paths[rows]:
            image = _decode(path, self._channels, self._size)
            if image.shape != self.shape[1:]:
                raise DataError(
                    f"{path}: is {image.shape[1]}x{image.shape[2]} pixels, others are "
                    f"{self.shape[2]}x{self.shape[3]}; give the size to resize to"
                )
            images.append(image)
        return np.stack(images)


def _decode(path: Path, channels: int, size: tuple[int, ...] | None) -> npt.NDArray[np.uint8]:
    """One image, (channels, height, width) uint8."""
    try:
        from PIL import Image  # optional: only this importer needs it
    except ImportError as error:
        raise DataError(f"{path}: reading images needs Pillow: pip install pillow") from error
    try:
        with open_regular(path) as stream, Image.open(stream, formats=_FORMATS) as file:
            if file.width * file.height > _MOST_PIXELS:  # before they are decoded
                raise DataError(
                    f"{path}: {file.width}x{file.height} pixels; make the image smaller"
                )
            image = file.convert("RGB" if channels == 3 else "L")
            if size is not None:
                image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            values = np.asarray(image, np.uint8)
    except (
        *(OSError, ValueError, SyntaxError),
        *(Image.DecompressionBombError, Image.DecompressionBombWarning),
    ) as error:
        raise DataError(f"{path}: cannot be read as an image: {error}") from error
    return np.ascontiguousarray(values.reshape(*values.shape[:2], channels).transpose(2, 0, 1))
