"""Whether an array of an HDF5 file can be read: its values lie in the file, and there are so many.

A shape costs nothing to claim, and a filter may be any plug-in. So both are looked at before memory
is taken, and compressed values are unpacked once, piece by piece, to see how large they are: HDF5
itself goes on unpacking as long as a piece lasts.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import h5py

from psopt.data.errors import DataError
from psopt.reading import most_unpacked

_DEFLATE, _SHUFFLE, _CHECKSUM = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, 3
_CHECKSUM_BYTES = 4
_REMEDY = "store the values as they are, or with gzip"


def check_storage(array: h5py.Dataset, where: str) -> None:
    """See that the claimed values of an array are there.

    Args:
        array: of a dtype that NumPy has, with a shape.
        where: file and array, for messages.

    Raises:
        DataError: they are not, or they pass through filters other than those of gzip.
    """
    size = math.prod(array.shape) * array.dtype.itemsize
    made = array.id.get_create_plist()
    filters = [made.get_filter(number)[0] for number in range(made.get_nfilters())]
    unknown = [code for code in filters if code not in (_DEFLATE, _SHUFFLE, _CHECKSUM)]
    if unknown or filters.count(_DEFLATE) > 1:
        raise DataError(f"{where}: passes through the HDF5 filters {filters}; {_REMEDY}")
    try:
        held = min(int(array.id.get_storage_size()), Path(array.file.filename).stat().st_size)
        most = most_unpacked(held) if filters else held
        if size > most or (array.chunks and _piece(array) > most_unpacked(held)):
            raise DataError(
                f"{where}: claims {size} bytes of values, shape {array.shape}, but the file holds "
                f"{held} of them; it is damaged, or they were never written"
            )
        if filters:
            _check_pieces(array, filters, where)
    except (OSError, RuntimeError) as error:
        raise DataError(f"{where}: cannot be read: {error}; the file is damaged") from error


def _piece(array: h5py.Dataset) -> int:
    return int(math.prod(array.chunks) * array.dtype.itemsize)


def _check_pieces(array: h5py.Dataset, filters: list[int], where: str) -> None:
    pieces: list[Any] = []
    array.id.chunk_iter(pieces.append)
    needed = math.prod(
        -(-length // step) for length, step in zip(array.shape, array.chunks, strict=True)
    )
    if len(pieces) != needed:
        raise DataError(f"{where}: {len(pieces)} of its {needed} pieces were written")
    plain = _piece(array)
    most = plain + plain // 1000 + 64  # noise becomes a little longer
    for piece in pieces:
        if piece.size > most or not _unpacks(array, piece, filters, plain):
            raise DataError(
                f"{where}: the piece at {piece.chunk_offset} does not unpack to the {plain} bytes that "
                "it stands for; the file is damaged"
            )


def _unpacks(array: h5py.Dataset, piece: Any, filters: list[int], plain: int) -> bool:
    skipped, data = array.id.read_direct_chunk(piece.chunk_offset)
    for place, code in reversed(list(enumerate(filters))):
        if skipped >> place & 1:
            continue
        if code == _CHECKSUM:
            data = data[:-_CHECKSUM_BYTES]
        elif code == _DEFLATE:
            try:
                data = zlib.decompressobj().decompress(data, plain + _CHECKSUM_BYTES + 1)
            except zlib.error:
                return False
    return len(data) == plain
