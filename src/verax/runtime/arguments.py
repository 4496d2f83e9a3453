"""What a program is called with: arrays checked against its signatures, and memory for outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import InputError
from verax.runtime.program_binary import Signature
from verax.runtime.python_steps import numpy_dtype

ArraySpec = tuple[str, tuple[int, ...], np.dtype]
"""Name, shape and dtype of an input or output."""


def types_of(signatures: Iterable[Signature]) -> list[ArraySpec]:
    """Names, shapes and NumPy dtypes of a program's inputs or outputs."""
    return [(s.name, s.shape, numpy_dtype(s.dtype)) for s in signatures]


def contiguous_if_exact(
    values: Mapping[str, Any], specs: Sequence[ArraySpec]
) -> list[np.ndarray] | None:
    """Contiguous arrays in the order of `specs`; None unless `values` holds arrays of exactly these
    names, shapes and dtypes. It may hold others."""
    arrays = []
    for name, shape, dtype in specs:
        array = values.get(name)
        if type(array) is not np.ndarray or array.shape != shape:
            return None
        if array.dtype is not dtype and array.dtype != dtype:
            return None
        arrays.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
    return arrays


def add_outputs(arrays: list[np.ndarray], types: Iterable[ArraySpec]) -> None:
    """Append an array, not filled, for each output. Raises `InputError` without memory."""
    try:
        for _, shape, dtype in types:
            arrays.append(np.empty(shape, dtype))
    except (MemoryError, ValueError) as error:
        raise InputError(
            "there is not enough memory for the outputs", next_step="run it on smaller inputs"
        ) from error


def check_inputs(specs: Sequence[ArraySpec], inputs: Mapping[str, Any]) -> list[np.ndarray]:
    """Arrays in the order of `wanted`. Raises `InputError` naming an input that is missing, unknown
    or unfit."""
    names = {name: None for name, _, _ in specs}
    for name in inputs:
        if name not in names:
            raise InputError(
                f"the model has no input {name!r}", next_step=f"its inputs are {', '.join(names)}"
            )
    arrays = []
    for name, shape, dtype in specs:
        if name not in inputs:
            raise InputError(f"the input {name!r} is missing", next_step=f"give {dtype}{shape}")
        array = as_array(inputs[name], f"input {name!r}")
        if array.dtype != dtype or array.shape != shape:
            raise InputError(
                f"the input is {array.dtype}{array.shape}, the program takes {dtype}{shape}",
                place=f"input {name!r}",
            )
        arrays.append(array)
    return arrays
