"""NumPy arrays from what users hand over: arrays, numbers, tensors of PyTorch.

PyTorch itself is not imported here: who hands over a tensor has done it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from verax.base.errors import InputError
from verax.base.optional import optional


def as_array(value: Any, place: str = "") -> np.ndarray:
    """`value` as an array, in the tensor's own memory where that can be.

    Gradients are left behind; bfloat16 keeps its bits. place: for errors. Raises `InputError` for
    what holds no array (sparse tensors, ragged lists).
    """
    if isinstance(value, np.ndarray):
        return value
    try:
        if hasattr(value, "detach"):
            tensor = value.detach().cpu()
            if str(tensor.dtype) == "torch.bfloat16":
                integers = tensor.contiguous().view(optional("torch", "to read a tensor").int16)
                return np.asarray(integers.numpy()).view(ml_dtypes.bfloat16)
            return np.asarray(tensor.resolve_conj().resolve_neg().numpy())
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InputError(
            f"a {type(value).__name__} is given that cannot be read as an array ({reason})",
            place=place,
            next_step="give a NumPy array or a dense tensor",
        ) from error


def as_arrays(values: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
    """The same by name. Raises `InputError` that names the input."""
    if all(isinstance(v, np.ndarray) for v in values.values()):
        return values
    return {name: as_array(v, f"input {name!r}") for name, v in values.items()}


def taken_as_they_are(
    values: Mapping[str, Any], wanted: Sequence[tuple[str, tuple[int, ...], np.dtype]]
) -> list[np.ndarray] | None:
    """The values in the order of `wanted` (name, shape, dtype) if they are arrays of exactly these
    types and no others; else None, and whoever asked finds out what is to be done."""
    if len(values) != len(wanted):
        return None
    found = []
    for name, shape, dtype in wanted:
        array = values.get(name)
        if type(array) is not np.ndarray or array.shape != shape:
            return None
        if array.dtype is not dtype and array.dtype != dtype:
            return None
        found.append(array)
    return found


def _address_by_interface(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


_POINTER = object.__basicsize__
"""Where an array's object has the address of its first element: NumPy's binary interface, which
every extension module is compiled with (`PyArrayObject_fields`)."""


def _address_by_field(array: np.ndarray) -> int:
    return ctypes.c_void_p.from_address(id(array) + _POINTER).value or 0


_probe = np.arange(3.0)
_known_layout = sys.implementation.name == "cpython" and (
    _address_by_field(_probe) == _address_by_interface(_probe)
)
address_of = _address_by_field if _known_layout else _address_by_interface
"""The address of an array's first element; NumPy's own way takes five times as long."""
