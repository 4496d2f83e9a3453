"""Tensors in and out of programs, in their own memory wherever that can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.arrays import as_array, as_tensor
from verax.base.errors import UnsupportedError
from verax.base.gpu.targets import CUDA
from verax.base.optional import optional

torch: Any = optional("torch", "to use verax.torch")
CUDA_TENSORS = CUDA
"""The type of PyTorch's devices whose tensors lie on a card of NVIDIA."""
SAMPLES = 16
"""Elements of a weight that are looked at to see whether it is what it was."""


def array_of(tensor: Any) -> np.ndarray:
    """The tensor's numbers, in its own memory where they lie densely.

    Raises `UnsupportedError` for a tensor that is not on the processor.
    """
    if device_of_tensors([tensor]).type != "cpu":
        raise UnsupportedError(f"a tensor lies on {tensor.device}", next_step="move it to the CPU")
    return as_array(tensor)


def device_of_tensors(arguments: Sequence[Any]) -> Any:
    """The `torch.device` of the tensors among `arguments`: the processor, or the card on which they
    lie, where single numbers may lie on the processor.

    Raises `UnsupportedError` for tensors elsewhere, or on several devices.
    """
    devices = {a.device for a in arguments if isinstance(a, torch.Tensor)}
    for device in devices:
        if device.type not in ("cpu", CUDA_TENSORS):
            raise UnsupportedError(
                f"a tensor lies on {device}; Verax compiles for the processor and for cards of "
                "NVIDIA",
                next_step="move the module and its inputs to the CPU",
            )
    cards = {device for device in devices if device.type != "cpu"}
    if not cards:
        return torch.device("cpu")
    arrays = {a.device for a in arguments if isinstance(a, torch.Tensor) and a.dim()}
    if len(cards | arrays) > 1:
        listed = ", ".join(sorted(map(str, cards | arrays)))
        raise UnsupportedError(
            f"the tensors of one graph lie on several devices: {listed}",
            next_step="move the module and its inputs to one of them",
        )
    return cards.pop()


def device_value(tensor: Any) -> Any:
    """A tensor on a card as programs take it: complex numbers as pairs."""
    plain = tensor.detach()
    return torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain


def tensor_on(value: Any, device: Any) -> Any:
    """A program's output as a tensor on `device`: the memory itself, if it lies there."""
    if isinstance(value, np.ndarray):
        return tensor_of(value).to(device)
    return value.owner if isinstance(value.owner, torch.Tensor) else torch.from_dlpack(value)


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
    kind = {"dtype": tensor.dtype, "device": tensor.device}
    return torch.empty_strided(tensor.shape, tuple(strides), **kind).copy_(tensor)


class Witness:
    """Tells whether a tensor is what it was: by its version, its address, and some of its numbers,
    as `tensor.data.copy_` leaves no trace in the version. reads: whether numbers are looked at,
    which on a card waits for all that it does."""

    def __init__(self, tensor: Any, reads: bool = True) -> None:
        self.version, self.address = _version(tensor), tensor.data_ptr()
        self.view: Any = None
        if reads and tensor.numel() and tensor.is_contiguous():
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
