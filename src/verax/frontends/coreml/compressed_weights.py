"""Compressed weights of ML programs, which become plain arrays while reading.

Formulas: coremltools, converters/mil/mil/ops/defs: iOS16/constexpr_ops.py, iOS18/compression.py.
An operation has other arguments from iOS 18 on: no `shape`, and numbers of few bits as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.coreml.packing import packed_size, unpacked

Arguments = Mapping[str, Any]
Arrays = tuple[np.ndarray, ...]


def _shape(a: Arguments) -> tuple[int, ...]:
    return tuple(int(d) for d in np.asarray(a["shape"]))


def _affine(a: Arguments, location: str) -> Arrays:
    """scale * (data - zero_point), both per element of `axis` or one for all."""
    data, axis = np.asarray(a["quantized_data"]), int(a["axis"])
    scale, zero = (np.asarray(a[n]) for n in ("scale", "zero_point"))
    along = [1] * data.ndim
    along[axis] = -1
    scale, zero = (v.reshape(along) if v.ndim else v for v in (scale, zero))
    shifted = data.astype(scale.dtype) - zero.astype(scale.dtype)
    dequantized = np.asarray(scale * shifted, scale.dtype)
    if dequantized.shape != data.shape:
        raise ModelError(f"{scale.size} scales for weights {data.shape}", place=location)
    return (dequantized,)


def _blockwise(a: Arguments, location: str) -> Arrays:
    """scale * (data - offset), each scale for a block of the data."""
    return (_shifted(np.asarray(a["data"]), a, location),)


def _shifted(data: np.ndarray, a: Arguments, location: str) -> np.ndarray:
    scale, offset = np.asarray(a["scale"]), a.get("offset")
    if offset is not None and np.shape(offset) != scale.shape:
        raise ModelError(f"offsets {np.shape(offset)}, scales {scale.shape}", place=location)
    mesh = _blocks(data.shape, scale.shape, location)
    shifted = data.astype(scale.dtype)
    if offset is not None:
        shifted = shifted - np.asarray(offset).astype(scale.dtype)[mesh]
    return np.asarray(shifted * scale[mesh], scale.dtype)


def _blocks(sizes: tuple[int, ...], counts: tuple[int, ...], location: str) -> tuple[Any, ...]:
    """Open mesh, one array per axis: index of the block of each position, of `counts` blocks."""
    if len(sizes) != len(counts) or any(c < 1 or s % c for s, c in zip(sizes, counts)):
        raise ModelError(f"weights {sizes} in blocks {counts}", place=location)
    return np.ix_(*(np.arange(s) // (s // c) for s, c in zip(sizes, counts)))


def _table(a: Arguments, location: str) -> Arrays:
    """Entries of a table of 2, 4, 16, 64 or 256 numbers; indices are packed, lowest bits first."""
    if "shape" not in a:
        return (_entries(np.asarray(a["indices"]), a, location),)
    table, shape = np.asarray(a["lut"]), _shape(a)
    bits = table.size.bit_length() - 1
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.asarray(a["indices"], np.uint8).ravel()
    if table.size != 1 << bits or not 1 <= bits <= 8 or raw.size != packed_size(count, bits):
        raise ModelError(f"{raw.size} bytes of indices into {table.size} numbers", place=location)
    return (table[unpacked(raw, bits, count, signed=False)].reshape(shape),)


def _entries(indices: np.ndarray, a: Arguments, location: str) -> np.ndarray:
    """Numbers, or vectors along vector_axis, of the table of each index's block."""
    tables, axis = np.asarray(a["lut"]), a.get("vector_axis")
    mesh = _blocks(indices.shape, tables.shape[:-2], location)
    width = tables.shape[-1]
    if indices.size and int(indices.max()) >= tables.shape[-2]:
        raise ModelError(
            f"index {int(indices.max())} into {tables.shape[-2]} entries", place=location
        )
    entries = tables[(*mesh, indices)]
    if width == 1:
        return entries[..., 0]
    if axis is None or not -indices.ndim <= int(axis) < indices.ndim:
        raise ModelError(f"vectors of {width} along axis {axis}", place=location)
    along = int(axis) % indices.ndim
    shape = list(indices.shape)
    shape[along] *= width
    return np.moveaxis(entries, -1, along + 1).reshape(shape)


def _widened(a: Arguments, location: str) -> Arrays:
    if a.get("output_dtype") != "fp32":
        raise ModelError(f"a constant cast to {a.get('output_dtype')}", place=location)
    return (np.asarray(a["source_val"]).astype(np.float32),)


def _sparse(a: Arguments, location: str) -> Arrays:
    """Numbers where the mask has a 1, lowest bits first; 0 elsewhere."""
    data, mask = np.asarray(a["nonzero_data"]), np.asarray(a["mask"], np.uint8)
    if "shape" in a:
        shape = _shape(a)
        count = int(np.prod(shape, dtype=np.int64))
        if mask.size != packed_size(count, 1):
            raise ModelError(f"{mask.size} bytes of mask for {count} places", place=location)
        mask = unpacked(mask.ravel(), 1, count, signed=False).reshape(shape)
    return (_spread(data, mask, location),)


def _spread(data: np.ndarray, mask: np.ndarray, location: str) -> np.ndarray:
    if int(np.count_nonzero(mask)) != data.size:
        raise ModelError(f"{data.size} numbers for {np.count_nonzero(mask)} places", place=location)
    dense = np.zeros(mask.shape, data.dtype)
    dense[mask != 0] = data.ravel()
    return dense


def _sparse_blockwise(a: Arguments, location: str) -> Arrays:
    """The mask, and its numbers shifted and scaled."""
    mask = np.asarray(a["data_mask"])
    dense = _shifted(_spread(np.asarray(a["nonzero_data"]), mask, location), a, location)
    return mask, dense[mask != 0]


def _sparse_table(a: Arguments, location: str) -> Arrays:
    """The mask, stretched by vectors, and the table's numbers where it has a 1."""
    mask = np.asarray(a["indices_mask"])
    indices = _spread(np.asarray(a["indices_nonzero_data"]), mask, location)
    dense = _entries(indices, a, location)
    if dense.shape != mask.shape:
        axis = int(a["vector_axis"])
        mask = np.repeat(mask, np.shape(a["lut"])[-1], axis)
    return mask, dense[mask != 0]


COMPRESSED: dict[str, Callable[[Arguments, str], Arrays]] = {
    "constexpr_affine_dequantize": _affine,
    "constexpr_blockwise_shift_scale": _blockwise,
    "constexpr_lut_to_dense": _table,
    "constexpr_cast": _widened,
    "constexpr_sparse_to_dense": _sparse,
    "constexpr_sparse_blockwise_shift_scale": _sparse_blockwise,
    "constexpr_lut_to_sparse": _sparse_table,
}

ARGUMENTS: dict[str, tuple[frozenset[str], ...]] = {
    kind: tuple(frozenset(names.split()) for names in forms)
    for kind, forms in {
        "constexpr_affine_dequantize": ("quantized_data zero_point scale axis",),
        "constexpr_blockwise_shift_scale": ("data scale", "data scale offset"),
        "constexpr_lut_to_dense": ("indices lut shape", "indices lut", "indices lut vector_axis"),
        "constexpr_cast": ("source_val output_dtype",),
        "constexpr_sparse_to_dense": ("nonzero_data mask shape", "nonzero_data mask"),
        "constexpr_sparse_blockwise_shift_scale": (
            "data_mask nonzero_data scale",
            "data_mask nonzero_data scale offset",
        ),
        "constexpr_lut_to_sparse": (
            "indices_mask indices_nonzero_data lut",
            "indices_mask indices_nonzero_data lut vector_axis",
        ),
    }.items()
}
"""The arguments that an operation may have, all of a set."""


def decompressed(kind: str, attributes: Arguments, location: str) -> Arrays:
    """The arrays that a `constexpr` operation stands for, one per output.

    Raises `ModelError` when its arguments are missing, or do not fit.
    """
    if frozenset(attributes) not in ARGUMENTS[kind]:
        raise ModelError(f"the arguments are {sorted(attributes)}", place=location)
    try:
        return COMPRESSED[kind](attributes, location)
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise ModelError(f"the compressed weights are damaged ({error})", place=location) from error
