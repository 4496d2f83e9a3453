"""Tensors in and out of programs, in their own memory wherever that can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.arrays import as_array, as_tensor
from verax.base.errors import UnsupportedError
from verax.base.optional import optional

torch: Any = optional("torch", "to use verax.torch")
SAMPLES = 16
"""Elements of a weight that are looked at to see whether it is what it was."""


def array_of(tensor: Any) -> np.ndarray:
    """The tensor's numbers, in its own memory where they lie densely.

    Raises `UnsupportedError` for a tensor that is not on the processor.
    """
    require_on_processor([tensor])
    return as_array(tensor)


def require_on_processor(arguments: Sequence[Any]) -> None:
    """Raise `UnsupportedError` for a tensor among `arguments` that lies elsewhere."""
    for tensor in arguments:
        if isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu":
            raise UnsupportedError(
                f"a tensor lies on {tensor.device}; Verax compiles for the processor",
                next_step="move the module and its inputs to the CPU",
            )


def tensor_of(array: np.ndarray) -> Any:
    """A tensor on the array's own memory; types of `ml_dtypes` keep their bits."""
    if not array.flags.writeable:
        array = array.copy()
    return as_tensor(array)


def of_kind(tensor: Any, pair: bool) -> Any:
    """The tensor itself, or the complex numbers whose pairs it holds."""
    return torch.view_as_complex(tensor.contiguous()) if pair else tensor


def with_strides(tensor: Any, strides: Sequence[int] | None) -> Any:
    """The tensor, laid out as eager PyTorch would give it; None for dense in the usual order."""
    if strides is None:
        return tensor
    return torch.empty_strided(tensor.shape, tuple(strides), dtype=tensor.dtype).copy_(tensor)


class Witness:
    """Tells whether a tensor is what it was: by its version, its address, and some of its numbers,
    as `tensor.data.copy_` leaves no trace in the version."""

    def __init__(self, tensor: Any) -> None:
        self.version, self.address = _version(tensor), tensor.data_ptr()
        self.view: Any = None
        if tensor.numel() and tensor.is_contiguous():
            flat = tensor.detach().reshape(-1)
            self.view = flat[:: max(1, flat.numel() // SAMPLES)]
            self.seen = as_array(self.view).tobytes()

    def changed(self, tensor: Any) -> bool:
        """Whether the tensor holds something else, as far as can be seen at little cost."""
        if _version(tensor) != self.version or tensor.data_ptr() != self.address:
            return True
        return self.view is not None and as_array(self.view).tobytes() != self.seen


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)
