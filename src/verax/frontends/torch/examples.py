"""Example inputs as PyTorch takes them: whatever a user gives becomes arguments of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.arrays import IN_BITS, as_array, as_tensor
from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.base.tensors import is_exported


def arguments_of(inputs: Any, device: Any = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments: a tensor or an array is one argument, a mapping names its
    own, a sequence holds positional ones.

    device: the `torch.device` where the module's parameters are; all tensors are copied there
    unless one of them is there already. Raises `UsageError` for anything else, and for an argument
    that no tensor can hold.
    """
    if device is not None:
        return _on_device(arguments_of(inputs), device)
    if isinstance(inputs, Mapping):
        return (), {str(k): _argument(v, repr(k)) for k, v in inputs.items()}
    if isinstance(inputs, Sequence) and not isinstance(inputs, str | bytes):
        return tuple(_argument(v, str(i)) for i, v in enumerate(inputs)), {}
    if hasattr(inputs, "shape"):
        return (_argument(inputs, "0"),), {}
    raise UsageError(
        f"example inputs cannot be of type {type(inputs).__name__}",
        next_step="give a tensor, a tuple of tensors, or a dictionary of keyword arguments",
    )


def _on_device(arguments: Any, device: Any) -> Any:
    """Arguments whose tensors are on `device`, as far as none of them is."""
    torch = optional("torch", "to read torch's own objects")
    pytree = torch.utils._pytree
    tensors = [t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)]
    if any(t.device == device for t in tensors):
        return arguments
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), arguments)


def _argument(value: Any, location: str) -> Any:
    """An argument with its arrays as tensors. None, numbers, texts stay what they are, and become
    part of the exported program; what holds tensors keeps its form."""
    torch = optional("torch", "to read torch's own objects")
    if value is None or isinstance(value, bool | int | float | str | torch.Tensor):
        return value
    if not isinstance(value, np.ndarray | np.generic) and is_exported(value):
        value = as_array(value, f"input {location}")  # of JAX, CuPy and others
    if isinstance(value, np.ndarray) and value.dtype.name in IN_BITS:
        return as_tensor(value.copy())
    if isinstance(value, Mapping):
        return {k: _argument(v, location) for k, v in value.items()}
    if isinstance(value, tuple | list) and any(hasattr(v, "shape") or v is None for v in value):
        return type(value)(_argument(v, location) for v in value)
    if isinstance(value, np.ndarray | np.generic | tuple | list):
        try:
            return torch.as_tensor(np.array(value))
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"an example input is no tensor ({error})", place=f"input {location}"
            ) from error
    return value
