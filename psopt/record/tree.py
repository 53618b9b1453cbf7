"""A nested dict of tensors and JSON values as an HDF5 file: written, read, and compared bit by bit.

A dict is a group, a tensor a dataset with its torch dtype as attribute, any other value a dataset
of one JSON text. Nothing is pickled, so reading a file runs no code of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import h5py
import numpy as np
import numpy.typing as npt
import torch

from psopt.reading import parse_json
from psopt.record.allowance import Allowance, TreeError

Tree = dict[str, Any]
"""dict[str, Tree | torch.Tensor | JSON value]; a JSON value is None, bool, int, float, str, a list
of JSON values, or inside a list a dict of them."""

_DTYPE = "torch dtype"
_WINDOW = 1 << 18  # bytes that are compared at once, in a cache
# A dtype that NumPy lacks (bfloat16, float8, ...) is stored as the bits of one that it has.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NUMPY = {
    *(torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32),
    *(torch.uint64, torch.int64, torch.float16, torch.float32, torch.float64),
    *(torch.complex64, torch.complex128),
}
_SAFE = " !\"#$&'()*+,:;<=>?@[\\]^`{|}~"
_DTYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in vars(torch).values()
    if isinstance(kind, torch.dtype) and kind.itemsize in (*_BITS, 16)
}
_SCALARS = (type(None), bool, int, float, str)


def write_tree(group: h5py.Group, tree: Mapping[str, Any], *, check: Callable[[], None]) -> None:
    """Write a tree into an empty group.

    Args:
        group: an open group.
        tree: tensors may be on any device, 0-d, empty or non-contiguous.
        check: called after each value; it raises when the medium has failed.

    Raises:
        TreeError: a value is neither tensor nor dict nor JSON; it says where in the tree.
    """
    _write(group, tree, "tree", check)


def read_tree(group: h5py.Group) -> Tree:
    """The tree of a group: tensors on the CPU, contiguous; dicts in the order of writing.

    Raises:
        TreeError: the group holds something that `write_tree` does not write, or more than its file
            has room for.
    """
    return _read_tree(group, Allowance(group))


def holds(group: h5py.Group, tree: Mapping[str, Any]) -> bool:
    """Whether a group is a tree: the same keys, types, dtypes and shapes, and every bit.

    One value at a time is in memory, so this is cheaper than reading the tree and comparing.
    """
    if set(group) != {escape(key) for key in tree}:
        return False
    return all(
        isinstance(group[escape(key)], h5py.Group) and holds(group[escape(key)], value)
        if isinstance(value, Mapping)
        else _same(_read(group, escape(key), Allowance(group)), value)
        for key, value in tree.items()
    )


def escape(key: str) -> str:
    """A link name for any key: HDF5 gives a meaning to "/", to "." and to the empty name."""
    if key in ("", ".", ".."):
        return "%" + key
    return quote(key, safe=_SAFE, errors="surrogatepass")


def unescape(name: str) -> str:
    """The key that `escape` made a link name of."""
    if name in ("%", "%.", "%.."):
        return name[1:]
    return unquote(name, errors="surrogatepass")


def _write(
    group: h5py.Group, tree: Mapping[str, Any], where: str, check: Callable[[], None]
) -> None:
    for key, value in tree.items():
        place = f"{where}[{key!r}]"
        if not isinstance(key, str):
            raise TreeError(f"{place}: the key is {type(key).__name__}, not text; use text keys")
        name = escape(key)
        if isinstance(value, Mapping):
            _write(group.create_group(name, track_order=True), value, place, check)
        elif isinstance(value, torch.Tensor):
            dataset = group.create_dataset(name, data=_on_host(value, place).numpy())
            dataset.attrs[_DTYPE] = _dtype_name(value.dtype)
        else:
            text = json.dumps(
                json_copy(value, place)
            ).encode()  # ASCII, so no NUL and no odd character
            group.create_dataset(name, data=text, dtype=h5py.string_dtype("ascii", len(text)))
        check()


def _read_tree(group: h5py.Group, allowance: Allowance) -> Tree:
    tree = {}
    for name in group:
        key = unescape(name)
        if escape(key) != name:
            raise TreeError(f"{group.name}/{name}: not a name that psopt writes")
        tree[key] = _read(group, name, allowance)
    return tree


def _read(group: h5py.Group, name: str, allowance: Allowance) -> Any:
    item = allowance.member(group, name)
    if isinstance(item, h5py.Group):
        return _read_tree(item, allowance)
    allowance.claim(item)
    return _tensor(item) if _DTYPE in item.attrs else _value(item)


def _value(item: h5py.Dataset) -> Any:
    if item.dtype.kind != "S" or item.shape != ():  # a text of variable length could be of any
        raise TreeError(f"{item.name}: neither a tensor nor one JSON text")
    try:
        return parse_json(item[()], portable=False)
    except ValueError as error:
        raise TreeError(f"{item.name}: not JSON: {error}") from error


def _tensor(item: h5py.Dataset) -> torch.Tensor:
    about = item.attrs.get_id(_DTYPE)
    if about.shape != () or h5py.check_string_dtype(about.dtype) is None:
        raise TreeError(f"{item.name}: its dtype is no text")
    name = item.attrs[_DTYPE]
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise TreeError(f"{item.name}: unknown dtype {name[:40]!r}; a newer torch has it")
    stored = dtype if dtype in _NUMPY else _BITS.get(dtype.itemsize, dtype)
    bits = torch.empty(item.shape, dtype=stored)
    if item.dtype != bits.numpy().dtype:
        raise TreeError(f"{item.name}: a {name} is not stored as {item.dtype}")
    if bits.numel():
        item.read_direct(bits.numpy())
    return bits.view(dtype)


def bits_of(value: torch.Tensor, place: str) -> torch.Tensor:
    """The tensor in a dtype that NumPy has, a view where that is possible.

    Raises:
        TreeError: its layout is not kept; ``place`` says where in the tree it is.
    """
    if value.layout != torch.strided or value.is_quantized:
        raise TreeError(
            f"{place}: a {value.dtype} tensor of layout {value.layout}; "
            "make it a dense, unquantised one"
        )
    plain = value.detach().resolve_conj().resolve_neg()
    if plain.dtype not in _NUMPY:  # before any copy: torch cannot copy some of these dtypes
        plain = plain.view(_BITS[plain.dtype.itemsize])
    return plain


def _on_host(value: torch.Tensor, place: str) -> torch.Tensor:
    """Its bits in memory order."""
    return bits_of(value, place).cpu().contiguous()


def _same(one: object, other: object) -> bool:
    """Whether two leaves are equal; 1 is not 1.0, -0.0 is not 0.0, and NaN is NaN."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return _equal(_bytes(one), _bytes(other))
    return type(one) is type(other) and json.dumps(one) == json.dumps(other)


def _equal(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> bool:
    """Whether two arrays are alike. Torch would do it with as many threads as it trains with."""
    starts = range(0, len(one), _WINDOW)
    return all(np.array_equal(one[i : i + _WINDOW], other[i : i + _WINDOW]) for i in starts)


def _bytes(value: torch.Tensor) -> npt.NDArray[np.uint8]:
    return _on_host(value, "tensor").reshape(-1).view(torch.uint8).numpy()


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def json_copy(value: object, place: str) -> object:
    """A copy, if the value comes back from JSON as it is; a tuple, say, would come back as a list.

    Raises:
        TreeError: it would not; ``place`` says where in the tree it is.
    """
    if type(value) is list:
        return [json_copy(item, f"{place}[{index}]") for index, item in enumerate(value)]
    if type(value) is dict:
        for key in value:
            if type(key) is not str:
                raise TreeError(f"{place}: the key {key!r} is not text; use text keys")
        return {key: json_copy(item, f"{place}[{key!r}]") for key, item in value.items()}
    if type(value) not in _SCALARS:
        raise TreeError(
            f"{place}: a {type(value).__name__}; a checkpoint keeps dicts, tensors, and JSON values"
            " (None, bool, int, float, str, list): convert it"
        )
    return value
