"""``psopt data``: make and look at HDF5 data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

_EXIT_USAGE = 2

data_app = typer.Typer(no_args_is_help=True, help="Make and look at HDF5 data sets.")


@data_app.command("import")
def data_import(
    data_format: Annotated[
        str, typer.Argument(metavar="FORMAT", help="cifar, images, libsvm, mnist or npz.")
    ],
    source: Annotated[
        Path,
        typer.Argument(
            help="mnist, cifar (binary version): the directory of the archive's files; images: a "
            "directory with one folder a class; libsvm: the training file; npz: the file."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="The HDF5 file to write.")],
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="An option of the format; may be repeated. libsvm: test (file), test_fraction, "
            "target, features, seed; npz: test_fraction, target, layout, seed; images: size, "
            "channels, test_fraction, seed; cifar: labels (fine or coarse).",
        ),
    ] = None,
    licence: Annotated[
        str | None, typer.Option(help="Licence of the data, kept in the file.")
    ] = None,
) -> None:
    """Import a data set into HDF5."""
    from psopt.data.errors import DataError
    from psopt.data.importers import import_dataset, parse_options

    try:
        chosen = parse_options(data_format, options or ())
        print(import_dataset(data_format, source, out, licence=licence, **chosen))
    except DataError as error:
        raise _refused(error) from error


@data_app.command("info")
def data_info(path: Annotated[str, typer.Argument(help="An HDF5 file, or `sample`.")]) -> None:
    """Say what a data set holds."""
    from psopt.data.errors import DataError
    from psopt.data.info import info

    try:
        print(info(path))
    except DataError as error:
        raise _refused(error) from error


def _refused(error: Exception) -> typer.Exit:
    print(error, file=sys.stderr, flush=True)
    return typer.Exit(_EXIT_USAGE)
