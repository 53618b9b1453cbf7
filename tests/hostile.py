"""Files as somebody would write them who means harm: data sets, sources of imports and job files.

Each maker takes an empty folder and returns what to give to `psopt`, and what its refusal has to say:
the file, the place in it, and what is wrong. Where code could run, it would touch `TOUCHED`.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

TOUCHED = "touched"
"""The file, in the folder above the maker's, that code of a hostile file would make."""

SECRET = "not-for-others"
"""What a file says that a hostile one leads to."""


@dataclass(frozen=True)
class Case:
    """What to call `psopt` with, and the regular expression that its refusal matches."""

    arguments: tuple[object, ...]
    said: str


Maker = Callable[[Path], Case]


class Runs:
    """A pickle of it touches a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def data_set(change: Callable[[h5py.File], object], said: str, name: str = "train/x") -> Maker:
    """A data set that is right but for the array ``name``, which ``change`` puts in."""

    def make(folder: Path) -> Case:
        path = folder / "set.h5"
        (folder / "other.h5").write_text(SECRET)
        with h5py.File(path, "w") as file:
            for split in ("train", "test"):
                file[f"{split}/x"] = np.zeros((4, 3), np.float32)
                file[f"{split}/y"] = np.arange(4) % 2
            if name in file:
                del file[name]
            change(file)
        return Case(("data", "info", path), rf"set\.h5: .*{said}")

    return make


def _unwritten(file: h5py.File) -> None:
    del file["train/y"]
    file.create_dataset("train/x", (2**45, 3), np.float32, chunks=(1000, 3))
    file.create_dataset("train/y", (2**45,), np.int64, chunks=(1000,))


def _many_labels(file: h5py.File) -> None:
    del file["train/x"]
    file.create_dataset("train/x", (2**40, 1), np.uint8, chunks=(2**10, 1), compression="gzip")
    file.create_dataset("train/y", (2**40,), np.int64, chunks=(2**10,), compression="gzip")


def _bomb(file: h5py.File) -> None:
    """Four gigabytes of zeros, in four megabytes."""
    made = file.create_dataset("train/x", (256, 2**24), "u1", chunks=(1, 2**24), compression="gzip")
    del file["train/y"]
    file["train/y"] = np.zeros(256, np.int64)
    zeros = zlib.compress(bytes(2**24))
    for row in range(256):
        made.id.write_direct_chunk((row, 0), zeros)


def _overfull(file: h5py.File) -> None:
    """A piece that stands for one megabyte, and goes on for half a gigabyte."""
    made = file.create_dataset("train/x", (4, 2**18), "u1", chunks=(4, 2**18), compression="gzip")
    made.id.write_direct_chunk((0, 0), zlib.compress(bytes(2**29), 1))


def _elsewhere(file: h5py.File) -> None:
    file.create_dataset("train/x", (4, 3), "u1", external=[("other.h5", 0, 12)])


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((4, 3), "u1")
    layout[:] = h5py.VirtualSource("other.h5", "x", (4, 3))
    file.create_virtual_dataset("train/x", layout)


def _put(name: str, value: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        file[name] = value

    return change


def _typed(name: str, dtype: Any) -> Callable[[h5py.File], None]:
    return lambda file: (
        file.create_dataset(name, (4,) if name[-1] == "y" else (4, 3), dtype) and None
    )


def _lzf(file: h5py.File) -> None:
    file.create_dataset("train/x", data=np.zeros((4, 3)), compression="lzf")


def _empty(file: h5py.File) -> None:
    file["train/x"] = h5py.Empty(np.float32)


def _sources(file: h5py.File) -> None:
    file.attrs["source"] = ["x"] * 1000


def source(name: str, kind: str, content: Callable[[Path], bytes], said: str) -> Maker:
    """The source ``name`` of an import, of the format ``kind``."""

    def make(folder: Path) -> Case:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(folder))
        if kind == "images":  # one to train on and one to test with
            path.with_name("b.png").write_bytes(content(folder))
        given = path if kind in ("npz", "libsvm") else folder
        return Case(("data", "import", kind, given, folder / "out.h5"), rf"{path.suffix}:?.*{said}")

    return make


def _packed(member: bytes, how: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", how) as archive:
        archive.writestr("x.npy", member)
        archive.writestr("y.npy", _npy(np.zeros(4)))
    return stream.getvalue()


def _npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def _pickled(folder: Path) -> bytes:
    return _packed(_npy(np.array([Runs(folder.parent / TOUCHED)] * 4, dtype=object)))


def _bare_pickle(folder: Path) -> bytes:
    return pickle.dumps(Runs(folder.parent / TOUCHED))


def _claiming(_: Path) -> bytes:
    """A header of thirty terabytes."""
    stream = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (4, 10**12)}
    np.lib.format.write_array_header_1_0(stream, header)
    return _packed(stream.getvalue() + bytes(96))


def _zip_bomb(_: Path) -> bytes:
    """A directory that says two gigabytes of a member."""
    content = _packed(_npy(np.zeros((4, 3))))
    place = content.index(b"PK\x01\x02") + 24
    return content[:place] + struct.pack("<I", 2**31) + content[place + 4 :]


def _lzma(_: Path) -> bytes:
    return _packed(_npy(np.zeros((4, 3))), zipfile.ZIP_LZMA)


def _idx_bomb(_: Path) -> bytes:
    return gzip.compress(
        bytes([0, 0, 8, 3]) + struct.pack(">III", 60000, 2**10, 2**10) + bytes(2**20)
    )


def _long_line(_: Path) -> bytes:
    return gzip.compress(b"1" * 2**25)


def _immense_picture(_: Path) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 9400, 9400, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10**6)))


def _postscript(folder: Path) -> bytes:
    touch = f"({folder.parent / TOUCHED}) (w) file closefile\n"
    return b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n" + touch.encode()


def job(content: bytes, said: str) -> Maker:
    """A job file."""

    def make(folder: Path) -> Case:
        path = folder / "job.yaml"
        path.write_bytes(content)
        return Case(("validate", path), rf"job\.yaml{said}")

    return make


def pipe(*words: str) -> Maker:
    """A pipe that nobody writes to, as the last argument."""

    def make(folder: Path) -> Case:
        os.mkfifo(folder / "pipe")
        return Case((*words, folder / "pipe"), "pipe: .*is a pipe, a socket or a device")

    return make


def device(*words: str) -> Maker:
    """A file without an end."""
    return lambda _: Case((*words, "/dev/zero"), "/dev/zero: .*is a pipe, a socket or a device")


_ALIASES = b"a: &a [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (new, new, b",".join([b"*%c" % (new - 1)] * 9)) for new in b"bcdefghij"
)

FILES: dict[str, Maker] = {
    "external link": data_set(
        _put("train/x", h5py.ExternalLink("other.h5", "/x")), "/train/x is a link"
    ),
    "soft link": data_set(_put("train/x", h5py.SoftLink("/test/x")), "/train/x is a link"),
    "external storage": data_set(_elsewhere, "/train/x keeps its values in other files"),
    "virtual data set": data_set(_virtual, "/train/x keeps its values in other files"),
    "shape without values": data_set(_unwritten, "/train/x: claims 422212465065984 bytes"),
    "many labels": data_set(_many_labels, "/train/x: claims 1099511627776 bytes", "train/y"),
    "compressed bomb": data_set(_bomb, "/train/x: claims 4294967296 bytes"),
    "piece that goes on": data_set(_overfull, r"/train/x: the piece at \(0, 0\) does not unpack"),
    "other filter": data_set(_lzf, "/train/x: passes through the HDF5 filters"),
    "objects": data_set(_typed("train/y", h5py.vlen_dtype(np.int64)), "/train/y: dtype", "train/y"),
    "references": data_set(_typed("train/x", h5py.ref_dtype), "/train/x: dtype"),
    "compound": data_set(_typed("train/x", [("a", "f4"), ("b", "S9")]), "/train/x: dtype"),
    "no shape": data_set(_empty, "/train/x is no array"),
    "long attribute": data_set(_sources, "attribute source: 1000 values are too many", "none"),
    "data pipe": pipe("data", "info"),
    "data device": device("data", "info"),
    "pickled array": source("a.npz", "npz", _pickled, "x is object"),
    "bare pickle": source("a.npz", "npz", _bare_pickle, "is no NumPy archive"),
    "array without values": source("a.npz", "npz", _claiming, "x is float64 of shape"),
    "zip bomb": source("a.npz", "npz", _zip_bomb, r"it says that it unpacks to 2147483\d+ bytes"),
    "zip of another kind": source("a.npz", "npz", _lzma, "x is packed as NumPy does not pack"),
    "gzip bomb": source(
        "train-images-idx3-ubyte.gz", "mnist", _idx_bomb, "62914560000 bytes of values, more than"
    ),
    "absurd feature": source(
        "a.txt", "libsvm", lambda _: b"1 1:1\n0 999999999999:1\n", ":2: index"
    ),
    "line without end": source("a.gz", "libsvm", _long_line, "1: the line is longer than"),
    "immense picture": source("cats/a.png", "images", _immense_picture, "9400x9400 pixels"),
    "programme as picture": source(
        "cats/a.png", "images", _postscript, "cannot be read as an image"
    ),
    "tag": job(b"name: !!python/object/apply:os.system ['true']\n", ":1:7: the tag .* is refused"),
    "aliases": job(_ALIASES, ":.*: (aliases expand to more than|more than 100 aliases)"),
    "deep job": job(b"a: " + b"[" * 5000, ":1:43: nested more than 40 levels"),
    "long job": job(b"name: x\n" * 2**18, ": the file is larger than 1048576 bytes"),
    "NUL": job(b"name: x\0y\n", r":1:8: the character .* is not allowed"),
    "not UTF-8": job(b"name: \xff\n", ":1:7: byte 0xff is not UTF-8"),
    "job pipe": pipe("validate"),
    "job device": device("validate"),
}
