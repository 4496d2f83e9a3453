"""Compressed weights of ML programs, which become plain arrays while reading.

Formulas: coremltools, converters/mil/mil/ops/defs/iOS16/constexpr_ops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verax.base.errors import ModelError


def _affine(a: Mapping[str, Any], place: str) -> np.ndarray:
    """scale * (data - zero_point), both per element of `axis` or one for all."""
    data, axis = np.asarray(a["quantized_data"]), int(a["axis"])
    scale, zero = (np.asarray(a[n]) for n in ("scale", "zero_point"))
    along = [1] * data.ndim
    along[axis] = -1
    scale, zero = (v.reshape(along) if v.ndim else v for v in (scale, zero))
    moved = data.astype(scale.dtype) - zero.astype(scale.dtype)
    found = np.asarray(scale * moved, scale.dtype)
    if found.shape != data.shape:
        raise ModelError(f"{scale.size} scales for weights {data.shape}", place=place)
    return found


def _table(a: Mapping[str, Any], place: str) -> np.ndarray:
    """Entries of a table of 2, 4, 16, 64 or 256 numbers; indices are packed, lowest bits first."""
    table, shape = np.asarray(a["lut"]), tuple(int(d) for d in np.asarray(a["shape"]))
    bits = table.size.bit_length() - 1
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.asarray(a["indices"], np.uint8).ravel()
    if table.size != 1 << bits or not 1 <= bits <= 8 or raw.size != -(-count * bits // 8):
        raise ModelError(f"{raw.size} bytes of indices into {table.size} numbers", place=place)
    flags = np.unpackbits(raw, bitorder="little")[: count * bits].reshape(count, bits)
    indices = np.packbits(flags, axis=1, bitorder="little").ravel()
    return table[indices].reshape(shape)


def _widened(a: Mapping[str, Any], place: str) -> np.ndarray:
    if a.get("output_dtype") != "fp32":
        raise ModelError(f"a constant cast to {a.get('output_dtype')}", place=place)
    return np.asarray(a["source_val"]).astype(np.float32)


def _sparse(a: Mapping[str, Any], place: str) -> np.ndarray:
    """Numbers where the mask has a 1, lowest bits first; 0 elsewhere."""
    data, shape = np.asarray(a["nonzero_data"]), tuple(int(d) for d in np.asarray(a["shape"]))
    count = int(np.prod(shape, dtype=np.int64))
    mask = np.unpackbits(np.asarray(a["mask"], np.uint8), bitorder="little")[:count] > 0
    if mask.size != count or int(mask.sum()) != data.size:
        raise ModelError(f"{data.size} numbers for {int(mask.sum())} places", place=place)
    found = np.zeros(count, data.dtype)
    found[mask] = data
    return found.reshape(shape)


COMPRESSED: dict[str, Callable[[Mapping[str, Any], str], np.ndarray]] = {
    "constexpr_affine_dequantize": _affine,
    "constexpr_lut_to_dense": _table,
    "constexpr_cast": _widened,
    "constexpr_sparse_to_dense": _sparse,
}


def decompressed(kind: str, attributes: Mapping[str, Any], place: str) -> np.ndarray:
    """The array that a `constexpr` operation stands for.

    Raises `ModelError` when its arguments are missing, or do not fit.
    """
    known = {
        "constexpr_affine_dequantize": {"quantized_data", "zero_point", "scale", "axis"},
        "constexpr_lut_to_dense": {"indices", "lut", "shape"},
        "constexpr_cast": {"source_val", "output_dtype"},
        "constexpr_sparse_to_dense": {"nonzero_data", "mask", "shape"},
    }[kind]
    if set(attributes) != known:
        raise ModelError(f"the arguments are {sorted(attributes)}", place=place)
    try:
        return COMPRESSED[kind](attributes, place)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"the compressed weights are damaged ({error})", place=place) from error
