"""NumPy arrays from what users hand over: numbers, and arrays of any library on any device.

No library is imported here: who hands over a tensor has done it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from verax.base.errors import InputError
from verax.base.machine import dlpack
from verax.base.machine.devices import device_of, require_one_array, synchronize
from verax.base.optional import optional
from verax.base.tensors import is_exported

IN_BITS = {
    "bfloat16": "int16",
    **{f"float8_{form}": "uint8" for form in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")},
}
"""Types that go between NumPy and PyTorch as integers of the same bits."""


def as_array(value: Any, location: str = "") -> np.ndarray:
    """`value` as an array on the host, in the tensor's own memory where that can be.

    Taken are tensors of PyTorch and arrays of JAX, CuPy and of whatever has `__array__` or
    `__dlpack__`, on any device, which is waited for. Gradients are left behind; bfloat16 and floats
    of 8 bits keep their bits; a complex tensor becomes pairs, a last axis of two numbers. location:
    for errors. Raises `InputError` for what holds no array (sparse tensors, ragged lists), and for
    one of which other processes hold parts.
    """
    if isinstance(value, np.ndarray):
        return value
    try:
        require_one_array(value)
        array = _of_tensor(value) if hasattr(value, "detach") else _of_foreign(value)
        if array.dtype.kind in "OUSMm":
            raise TypeError("it holds no numbers")
        return array
    except InputError as error:
        raise InputError(error.cause, place=location, next_step=error.next_step) from error
    except (TypeError, ValueError, RuntimeError, NotImplementedError, BufferError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InputError(
            f"a {type(value).__name__} is given that cannot be read as an array ({reason})",
            place=location,
            next_step="give a NumPy array or a dense tensor",
        ) from error


def _of_tensor(value: Any) -> np.ndarray:
    """The array of a tensor of PyTorch."""
    tensor = value.detach()
    if (device := getattr(tensor, "device", None)) is not None and device_of(tensor):
        synchronize(device)
    tensor = tensor.cpu()
    if (kind := str(tensor.dtype).removeprefix("torch.")) in IN_BITS:
        torch = optional("torch", "to read a tensor")
        integers = tensor.contiguous().view(getattr(torch, IN_BITS[kind]))
        return np.asarray(integers.numpy()).view(getattr(ml_dtypes, kind))
    tensor = tensor.resolve_conj().resolve_neg()
    if "complex" in str(tensor.dtype):
        tensor = optional("torch", "to read a tensor").view_as_real(tensor)
    return np.asarray(tensor.numpy())


def _of_foreign(value: Any) -> np.ndarray:
    """The array of what another library than PyTorch made, or of a number or a list."""
    if not is_exported(value):
        return np.asarray(value)
    # CuPy says no to NumPy where a copy from the device would go unseen, and has a word for it.
    if device_of(value) and callable(getattr(value, "get", None)):
        return np.asarray(value.get())
    if hasattr(value, "__array__"):
        return np.asarray(value)
    return dlpack.host_copy(value)


def as_tensor(array: np.ndarray) -> Any:
    """A tensor of PyTorch on the array's own memory; types of `ml_dtypes` keep their bits.

    Raises `InputError` for a type that PyTorch has not.
    """
    torch = optional("torch", "to make a tensor")
    name = array.dtype.name
    if name in IN_BITS:
        return torch.from_numpy(array.view(IN_BITS[name])).view(getattr(torch, name))
    if array.dtype.kind == "V" or hasattr(ml_dtypes, name):
        raise InputError(
            f"PyTorch has no tensors of {name}", next_step="give them in another element type"
        )
    return torch.from_numpy(array)


def as_arrays(values: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
    """The same by name. Raises `InputError` that names the input."""
    if all(isinstance(v, np.ndarray) for v in values.values()):
        return values
    return {name: as_array(v, f"input {name!r}") for name, v in values.items()}


def _by_interface(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


_POINTER = object.__basicsize__
"""Where an array's object has the address of its first element: NumPy's binary interface, which
every extension module is compiled with (`PyArrayObject_fields`)."""
_WORD = ctypes.sizeof(ctypes.c_size_t)
_POINTER_WORD = _POINTER // _WORD


def _has_known_layout() -> bool:
    probe = np.arange(3.0)
    stored_address = ctypes.c_size_t.from_address(id(probe) + _POINTER).value
    return (
        sys.implementation.name == "cpython"
        and not _POINTER % _WORD
        and stored_address == _by_interface(probe)
    )


_KNOWN = _has_known_layout()


def address_writer(table: Any, indices: Sequence[int]) -> Callable[[Sequence[np.ndarray]], None]:
    """A function write(arrays) that stores the address of arrays[i] in table[indices[i]].

    table: a ctypes array with 8 bytes an entry. `write` reuses one buffer: it is for one thread at
    a time. It takes a tenth of the time of `ndarray.ctypes.data`.
    """
    entries = memoryview(table).cast("B").cast("P")
    if not _KNOWN:

        def ask(arrays: Sequence[np.ndarray]) -> None:
            for i, array in zip(indices, arrays, strict=True):
                entries[i] = _by_interface(array)

        return ask
    words = ctypes.POINTER(ctypes.c_size_t)()
    target = memoryview(words).cast("B").cast("P")  # the pointer itself, as a number

    def write(arrays: Sequence[np.ndarray]) -> None:
        for i, array in zip(indices, arrays, strict=True):
            target[0] = id(array)
            entries[i] = words[_POINTER_WORD]

    return write
