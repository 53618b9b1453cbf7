"""NumPy archives: x_train, y_train, x_test, y_test (as Keras has them), or x and y."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from psopt.data.errors import DataError
from psopt.data.importers.table import Imported, Part
from psopt.data.importers.targets import Target, choose_test_rows, encode
from psopt.reading import most_unpacked, open_regular

_SPLIT = ("x_train", "y_train", "x_test", "y_test")
_WHOLE = ("x", "y")
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_UNREADABLE = (
    *(OSError, ValueError, EOFError, SyntaxError, RuntimeError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)
_CHANNELS = (1, 3, 4)

Layout = Literal["auto", "channels_first", "channels_last"]


def read_npz(
    source: Path,
    *,
    test_fraction: float | None = None,
    target: Target = "auto",
    layout: Layout = "auto",
    seed: int = 1,
) -> Imported:
    """Reads a .npz file; its arrays are numbers or texts, never pickled objects.

    uint8 x stay bytes, other numbers become float32. Bytes of three dimensions are grey images.

    Args:
        source: the file.
        test_fraction: the share of x and y to test on, in (0, 1), 0.2 when None; an archive with a
            test set of its own takes none.
        target: what y are: "classes", "values" (regression), or "auto": values if any is not whole.
        layout: of images in four dimensions; "auto" sees a last axis of 1, 3 or 4 as the channels,
            unless the second axis is one too.
        seed: of the choice of test samples.

    Raises:
        DataError: not such an archive, damaged, or its arrays do not fit each other.
    """
    arrays, held = _load(source)
    if all(name in arrays for name in _SPLIT):
        if test_fraction is not None:
            raise DataError(f"{source}: has a test set of its own; leave out the test fraction")
        x_train, y_train, x_test, y_test = (arrays[name] for name in _SPLIT)
    elif all(name in arrays for name in _WHOLE):
        x, y = (arrays[name] for name in _WHOLE)
        _check_lengths(source, x, y)
        train, test = choose_test_rows(len(x), test_fraction, seed, str(source))
        x_train, y_train, x_test, y_test = x[train], y[train], x[test], y[test]
    else:
        raise DataError(
            f"{source}: holds {', '.join(held) or 'nothing'}; expected {', '.join(_SPLIT)}, or "
            f"{' and '.join(_WHOLE)}"
        )
    _check_lengths(source, x_train, y_train)
    _check_lengths(source, x_test, y_test)
    y_train, y_test, classes = encode(y_train, y_test, target, str(source))
    return Imported(
        train=Part(_inputs(x_train, layout, source), y_train),
        test=Part(_inputs(x_test, layout, source), y_test),
        classes=classes,
        source=f"NumPy archive {source.name}",
    )


def _load(source: Path) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """The arrays that can be used, and the names of all; np.load would take a pickle too."""
    try:
        with open_regular(source) as stream, zipfile.ZipFile(stream) as archive:
            held = sorted(name.removesuffix(".npy") for name in archive.namelist())
            chosen = [name for name in (*_SPLIT, *_WHOLE) if f"{name}.npy" in archive.namelist()]
            size = sum(archive.getinfo(f"{name}.npy").file_size for name in chosen)
            if size > most_unpacked(source.stat().st_size):
                raise ValueError(f"it says that it unpacks to {size} bytes, more than data do")
            return {name: _array(archive, name) for name in chosen}, held
    except _UNREADABLE as error:
        raise DataError(f"{source}: is no NumPy archive of plain arrays: {error}") from error


def _array(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """One array, whose header is believed only where the archive holds so many bytes.

    Raises:
        ValueError: it is none, or of objects, or longer than it is.
    """
    about = archive.getinfo(f"{name}.npy")
    if about.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is packed as NumPy does not pack")
    with archive.open(about) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"{name} is of the unknown format {version}")
        shape, _, dtype = _HEADERS[version](stream)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or size > about.file_size:
            raise ValueError(f"{name} is {dtype} of shape {shape}, in {about.file_size} bytes")
    with archive.open(about) as stream:
        values: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return values


def _check_lengths(source: Path, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y) or len(x) == 0:
        raise DataError(
            f"{source}: x has shape {x.shape} and y {y.shape}; expected one y for each sample"
        )


def _inputs(x: npt.NDArray[Any], layout: Layout, source: Path) -> npt.NDArray[Any]:
    """Gives x as uint8 or float32, (samples, *shape), images with their channels first."""
    if layout not in ("auto", "channels_first", "channels_last"):
        raise DataError(
            f'{source}: layout must be "auto", "channels_first" or "channels_last", not {layout!r}'
        )
    if x.dtype.kind not in "biuf":
        raise DataError(f"{source}: x is {x.dtype}, expected numbers")
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):  # the writer names the row that became infinite
            x = x.astype(np.float32)
    if x.ndim == 1:
        return x[:, None]
    if x.ndim == 3 and x.dtype == np.uint8:
        return x[:, None]
    guess = x.shape[-1] in _CHANNELS and x.shape[1] not in _CHANNELS
    if x.ndim == 4 and (layout == "channels_last" or (layout == "auto" and guess)):
        return np.moveaxis(x, -1, 1)
    return x
