"""Importers: one file a format, and the explicit table of them."""

from __future__ import annotations

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
    if format not in IMPORTERS:
        raise DataError(f"unknown format {format!r}; {_suggest(format, list(IMPORTERS))}")
    importer = IMPORTERS[format]
    valid = list(inspect.signature(importer).parameters)[1:]
    for key in options:
        if key not in valid:
            raise DataError(f"format {format}: unknown option {key!r}; {_suggest(key, valid)}")
    if out.exists():  # before the hours that a large set may take
        raise DataError(f"{out}: exists; remove it first, or name another file")
    if not source.exists():
        raise DataError(f"{source}: no such file or directory")
    data = importer(source, **options)
    return write_dataset(data if licence is None else replace(data, licence=licence), out)


def parse_options(format: str, texts: Iterable[str]) -> dict[str, Any]:  # noqa: A002
    """Options of an importer from `key=value` words, each of the type that the importer declares.

    Raises:
        DataError: no such format or option, or a value that is not of its type.
    """
    if format not in IMPORTERS:
        raise DataError(f"unknown format {format!r}; {_suggest(format, list(IMPORTERS))}")
    parameters = dict(
        list(inspect.signature(IMPORTERS[format], eval_str=True).parameters.items())[1:]
    )
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise DataError(f"--set {text}: write key=value")
        if key not in parameters:
            raise DataError(
                f"format {format}: unknown option {key!r}; {_suggest(key, list(parameters))}"
            )
        try:
            options[key] = TypeAdapter(parameters[key].annotation).validate_python(value)
        except ValidationError:
            try:  # [32, 32], and numbers among the choices
                options[key] = TypeAdapter(parameters[key].annotation).validate_json(value)
            except ValidationError as error:
                reason = error.errors()[0]["msg"]
                raise DataError(f"--set {text}: option {key} of {format}: {reason}") from error
    return options


def _suggest(word: str, valid: list[str]) -> str:
    near = difflib.get_close_matches(word, valid, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"valid: {', '.join(valid)}" if valid else "it takes none"
