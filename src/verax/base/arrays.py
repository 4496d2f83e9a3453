"""NumPy arrays from what users hand over: arrays, numbers, tensors of PyTorch.

PyTorch itself is not imported here: who hands over a tensor has done it.
"""

from __future__ import annotations

from collections.abc import Mapping
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
