"""Arrays as files hold them: .npy has no word for the types of `ml_dtypes`, and what stands for
them is brought back to the type that a network declares."""

from __future__ import annotations

import numpy as np

from verax.ir.types import NARROW_FLOATS, NARROW_INTEGERS, DType


def storable(array: np.ndarray) -> np.ndarray:
    """The array in a type that .npy has a word for and that holds every number: float32 for floats
    of 16 bits (bfloat16) and fewer, int8 or uint8 for integers of 4 and 2 bits."""
    name = array.dtype.name
    if name == DType.bfloat16 or name in NARROW_FLOATS:
        return array.astype(np.float32)
    return array.astype(DType(name).counted) if name in NARROW_INTEGERS else array


def in_type(array: np.ndarray, declared: DType) -> np.ndarray:
    """The array in a declared type of `ml_dtypes` where that changes no number, else as it is.

    Bytes without a type, as NumPy stores them, are codes of the type; so are uint8 for floats of
    8 and 4 bits. Wider floats and integers are converted if the type holds them all. Other types
    are left alone.
    """
    if not (declared.is_narrow or declared is DType.bfloat16) or array.dtype == declared.numpy:
        return array
    nameless = array.dtype.kind == "V" and array.dtype.names is None and array.dtype.isbuiltin != 2
    if nameless:
        fits = array.dtype.itemsize == declared.itemsize
        return array.view(declared.numpy) if fits else array
    if declared in NARROW_FLOATS and array.dtype == np.uint8:
        return array.view(declared.numpy)
    if array.dtype.kind not in ("f" if declared.is_float else "iu"):
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = array.astype(declared.numpy)
    wide = narrow.astype(np.float64 if declared.is_float else np.int64)
    return narrow if np.array_equal(wide, array, equal_nan=declared.is_float) else array
