"""The HDF5 layout of a dataset, and opening a file that may not follow it.

    /train/x   (samples, *shape of a sample): uint8 in 0..255, or float16, float32, float64
    /train/y   (samples,) integer labels, or (samples,) or (samples, width) float targets
    /test/x, /test/y   of the same shape and kind
    root attributes    classes (texts), mean, std (scalars, or one a channel), source, licence,
                       created_by

Images are (samples, channels, height, width). `mean` and `std` are in the units of x after uint8
is scaled to [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from psopt.data.errors import DataError
from psopt.data.storage import check_storage
from psopt.reading import open_regular

_NUMBERS = ("mean", "std")
_ATTRIBUTES = ("classes", *_NUMBERS, "source", "licence", "created_by")
_MOST_ENTRIES = 2**24  # of an attribute: as many as the importers take features

_SAMPLE = Path(__file__).with_name("sample.h5")


def resolve(path: str | Path) -> Path:
    """The file that a job's `data.path` names; "sample" is the set that comes with the package."""
    return _SAMPLE if str(path) == "sample" else Path(path)


def open_file(path: Path) -> h5py.File:
    """Opens an HDF5 file for reading only.

    Raises:
        DataError: no such file, a pipe or a device, not readable, locked by another process, or not
            HDF5.
    """
    try:
        open_regular(path).close()  # HDF5 would wait for a pipe
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise DataError(f"{path}: no such dataset; make one with `psopt data import`") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a directory; name the .h5 file in it") from None
    except OSError as error:
        if "unable to lock file" in str(error):
            raise DataError(
                f"{path}: the HDF5 file is locked, or its file system has no locks: close the "
                "program that writes it; if there is none, set HDF5_USE_FILE_LOCKING=FALSE in the "
                "environment of every rank"
            ) from error
        raise DataError(
            f"{path}: cannot be opened as HDF5: {error}; make datasets with `psopt data import`"
        ) from error


@dataclass(frozen=True, slots=True)
class Table:
    """One split as it lies in the file: its x is not read yet, its y is.

    Args:
        name: "train" or "test".
        rows: samples in the file, or of them chosen.
        shape: of one sample.
        stored: dtype of x in the file.
        y: (rows,) int64 labels, or (rows, width) float32 targets.
        chosen: (rows,) which rows of the file are used, rising; None for all.
    """

    name: str
    rows: int
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    y: npt.NDArray[np.int64] | npt.NDArray[np.float32]
    chosen: npt.NDArray[np.int64] | None = None

    @property
    def held(self) -> np.dtype[Any]:
        """The dtype x is held in: uint8 stays, every float becomes float32."""
        return np.dtype(np.uint8 if self.stored == np.uint8 else np.float32)


def read_table(file: h5py.File, name: str) -> Table:
    """Checks the structure of a split and reads its y.

    Raises:
        DataError: an array is missing, empty, of a wrong shape or dtype, or lies in another file; or
            it claims more values than the file can hold.
    """
    x, y = member(file, f"{name}/x"), member(file, f"{name}/y")
    where = f"{file.filename}: /{name}"
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise DataError(f"{where}/x: shape {x.shape}, expected (samples, *shape of a sample)")
    if x.dtype != np.uint8 and (x.dtype.kind != "f" or x.dtype.itemsize > 8):
        raise DataError(f"{where}/x: dtype {x.dtype}; store uint8 (0..255) or floats")
    if x.shape[0] == 0:
        raise DataError(f"{where}: holds no samples; a dataset needs both train and test samples")
    if y.ndim == 0 or y.shape[0] != x.shape[0]:
        raise DataError(f"{where}: x has {x.shape[0]} samples, y has shape {y.shape}; one y each")
    check_storage(x, f"{where}/x")
    return Table(name, x.shape[0], tuple(x.shape[1:]), x.dtype, _targets(y, f"{where}/y"))


def read_attributes(file: h5py.File) -> dict[str, Any]:
    """The root attributes of the layout: texts as str, `classes` as a tuple of str, numbers of numpy.

    Raises:
        DataError: an attribute cannot be read, is of another kind, or `classes` is no list of texts.
    """
    attributes = {}
    for key in (key for key in _ATTRIBUTES if key in file.attrs):
        try:
            _check_attribute(file, key)
            attributes[key] = _plain(file.attrs[key])
        except (OSError, TypeError, RuntimeError, LookupError) as error:
            raise DataError(f"{file.filename}: attribute {key} cannot be read: {error}") from error
    classes = attributes.get("classes")
    if classes is not None:
        names = tuple(_plain(name) for name in np.ravel(classes))
        if not names or not all(isinstance(name, str) for name in names):
            raise DataError(f"{file.filename}: attribute classes: expected a list of texts")
        attributes["classes"] = names
    return attributes


def member(file: h5py.File, path: str) -> h5py.Dataset:
    """An array of the file, such as "train/x"; only plain members of this very file are followed.

    Raises:
        DataError: it is missing, is no array, or has its values in another file.
    """
    node: Any = file
    for part in path.split("/"):
        try:
            link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
        except TypeError:  # a kind of link that h5py does not know
            link = part
        if link is None:
            raise DataError(
                f"{file.filename}: /{path} is missing; a dataset has /train/x, /train/y, /test/x "
                "and /test/y, as `psopt data import` makes them"
            )
        if not isinstance(link, h5py.HardLink):
            raise DataError(
                f"{file.filename}: /{path} is a link, which could lead to another file; copy the "
                "array itself into the dataset"
            )
        try:
            node = node[part]
        except (KeyError, OSError, RuntimeError) as error:
            raise DataError(f"{file.filename}: /{path} cannot be opened: {error}") from error
    if not (isinstance(node, h5py.Dataset) and _is_known(node)):
        raise DataError(f"{file.filename}: /{path} is no array")
    if node.is_virtual or node.external:
        raise DataError(
            f"{file.filename}: /{path} keeps its values in other files; copy them into the dataset"
        )
    return node


def _is_known(node: h5py.Dataset) -> bool:
    """Whether it has a shape, and a dtype that NumPy has too."""
    try:
        return node.shape is not None and isinstance(node.dtype, np.dtype)
    except (TypeError, ValueError):
        return False


def _check_attribute(file: h5py.File, key: str) -> None:
    """See what an attribute is, and how large, before it is read.

    Raises:
        DataError: it is of another kind, or too large.
    """
    held = file.attrs.get_id(key)
    numbers = held.dtype.kind in "biuf"
    if held.shape is None or not (numbers or h5py.check_string_dtype(held.dtype)):
        raise DataError(f"{file.filename}: attribute {key}: neither numbers nor texts")
    if numbers != (key in _NUMBERS):
        expected = (
            "numbers" if key in _NUMBERS else "a list of texts" if key == "classes" else "a text"
        )
        raise DataError(f"{file.filename}: attribute {key}: expected {expected}")
    most = _MOST_ENTRIES if key in ("classes", *_NUMBERS) else 1
    if math.prod(held.shape) > most or held.get_storage_size() > Path(file.filename).stat().st_size:
        raise DataError(
            f"{file.filename}: attribute {key}: {math.prod(held.shape)} values are too many"
        )


def _targets(y: h5py.Dataset, where: str) -> npt.NDArray[np.int64] | npt.NDArray[np.float32]:
    """Labels (samples,) int64, or targets (samples, width) float32."""
    if y.dtype.kind in "iu":
        if y.ndim != 1:
            raise DataError(f"{where}: labels have shape {y.shape}, expected (samples,)")
        return np.asarray(_read(y, where), dtype=np.int64)
    if y.dtype.kind != "f":
        raise DataError(f"{where}: dtype {y.dtype}; store integer labels or float targets")
    if y.ndim > 2 or 0 in y.shape:
        raise DataError(f"{where}: targets have shape {y.shape}, expected (samples, width)")
    with np.errstate(over="ignore"):  # what overflows is infinite, and `check` names its row
        return np.asarray(_read(y, where), dtype=np.float32).reshape(y.shape[0], -1)


def _read(array: h5py.Dataset, where: str) -> npt.NDArray[Any]:
    check_storage(array, where)
    try:
        return np.asarray(array[()])
    except OSError as error:
        raise DataError(f"{where}: cannot be read: {error}; the file is damaged") from error


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
