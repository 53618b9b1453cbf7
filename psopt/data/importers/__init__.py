"""Importers: one file a format, and the explicit table of them."""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from psopt.data.errors import DataError
from psopt.data.importers.cifar import read_cifar
from psopt.data.importers.images import read_images
from psopt.data.importers.libsvm import read_libsvm
from psopt.data.importers.mnist import read_mnist
from psopt.data.importers.npz import read_npz
from psopt.data.importers.table import Imported, write_dataset

Importer = Callable[..., Imported]
"""(source: Path, **options) to a dataset; what it takes are its keyword parameters."""

IMPORTERS: dict[str, Importer] = {
    "mnist": read_mnist,
    "cifar": read_cifar,
    "npz": read_npz,
    "libsvm": read_libsvm,
    "images": read_images,
}


def import_dataset(
    format: str,  # noqa: A002 - the word that the command line uses
    source: str | Path,
    out: str | Path,
    *,
    licence: str | None = None,
    **options: Any,
) -> Path:
    """Reads a dataset of some format and writes it as HDF5.

    Args:
        format: a key of `IMPORTERS`.
        source: the file or directory to read.
        out: the HDF5 file to make; it appears when it is complete.
        licence: the licence of the data, in words, kept in the file.
        options: of the importer.

    Returns:
        `out`, as a Path.

    Raises:
        DataError: no such format, option or source; the source is damaged; or `out` exists.
    """
    source, out = Path(source), Path(out)
    importer = _importer(format)
    _check_options(format, options)
    if out.exists():  # before the hours that a large set may take
        raise DataError(f"{out}: exists; remove it first, or name another file")
    if not source.exists():
        raise DataError(f"{source}: no such file or directory")
    try:
        data = importer(source, **options)
        return write_dataset(data if licence is None else replace(data, licence=licence), out)
    except DataError:
        raise
    except (ValueError, OverflowError, MemoryError) as error:  # a seed below 0, too many features
        raise DataError(f"{source}: cannot be imported with {options}: {error}") from error


def parse_options(format: str, texts: Iterable[str]) -> dict[str, Any]:  # noqa: A002
    """Options of an importer from `key=value` words, each of the type that the importer declares.

    Raises:
        DataError: no such format or option, or a value that is not of its type.
    """
    words = [text.partition("=") for text in texts]
    for key, equals, value in words:
        if not equals:
            raise DataError(f"--set {key}{value}: write key=value")
    types = _check_options(format, [key for key, _, _ in words])
    return {key: _typed(format, key, value, types[key]) for key, _, value in words}


def _typed(format: str, key: str, value: str, annotation: Any) -> Any:  # noqa: A002
    kind = TypeAdapter(annotation)
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
    with contextlib.suppress(ValidationError):  # [32, 32], and numbers among the choices
        return kind.validate_json(value)
    raise DataError(f"--set {key}={value}: option {key} of {format}: {reason}")


def _importer(format: str) -> Importer:  # noqa: A002
    if format not in IMPORTERS:
        raise DataError(f"unknown format {format!r}; {_suggest(format, list(IMPORTERS))}")
    return IMPORTERS[format]


def _check_options(format: str, keys: Iterable[str]) -> dict[str, Any]:  # noqa: A002
    """The importer's options with their types, if the keys are among them."""
    parameters = inspect.signature(_importer(format), eval_str=True).parameters
    valid = {name: parameter.annotation for name, parameter in list(parameters.items())[1:]}
    for key in keys:
        if key not in valid:
            raise DataError(
                f"format {format}: unknown option {key!r}; {_suggest(key, list(valid))}"
            )
    return valid


def _suggest(word: str, valid: list[str]) -> str:
    near = difflib.get_close_matches(word, valid, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"valid: {', '.join(valid)}" if valid else "it takes none"
