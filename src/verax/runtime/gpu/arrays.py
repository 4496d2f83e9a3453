"""Arrays on a GPU: callers' own, used without a copy, and those that programs give.

Whoever calls with arrays of PyTorch or CuPy goes on in the stream that he works in: nobody waits.
Arrays of others are used in the program's own stream, and their memory may be used again when the
call returns.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from verax.base.arrays import IN_BITS, as_array
from verax.base.errors import InputError
from verax.base.machine import dlpack
from verax.base.tensors import is_exported, is_from, is_tensor
from verax.runtime.gpu.device import Device
from verax.runtime.gpu.spare import SpareMemory

LEGACY_STREAM = 1
"""The driver's name of the stream that is nobody's, which PyTorch calls 0."""
CUDA_TENSORS = "cuda"
"""The type of PyTorch's devices whose tensors lie on a card of NVIDIA."""
ALIGNMENT = 4
"""Bytes: arrays that begin elsewhere, as slices of bytes do, are copied on the device."""
SMALLEST = 256
"""Bytes: an array of nothing has an address, too."""


class DeviceArray:
    """An array on a GPU, dense. Any library takes it by DLPack (`torch.from_dlpack(array)`), and
    `numpy.asarray(array)` copies it to the host.

    owner: what keeps the memory, a tensor of PyTorch where the caller's are. stream: in which it is
    filled.
    """

    def __init__(
        self,
        device: Device,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype,
        owner: Any = None,
        stream: int | None = None,
    ) -> None:
        self.device, self.address = device, address
        self.shape, self.dtype, self.owner = shape, dtype, owner
        self.stream = device.own_stream if stream is None else stream
        self.spare: SpareMemory | None = None

    def note_stream(self, stream: int) -> None:
        """Work of that stream, too, may use it from now on."""
        if self.spare is not None and stream != self.stream:
            self.spare.is_shared = True

    @staticmethod
    def allocated(
        device: Device, shape: tuple[int, ...], dtype: np.dtype, stream: int | None = None
    ) -> DeviceArray:
        """An array in memory of its own. Raises `InputError` where there is none."""
        nbytes = math.prod(shape) * dtype.itemsize
        address = device.allocate(max(nbytes, SMALLEST))
        array = DeviceArray(device, address, shape, dtype, stream=stream)
        weakref.finalize(array, device.free, address).atexit = False
        return array

    @staticmethod
    def reusing(
        device: Device, shape: tuple[int, ...], dtype: np.dtype, stream: int | None = None
    ) -> DeviceArray:
        """An array that holds anything, in memory that one before it may have had (`spare`)."""
        stream = device.own_stream if stream is None else stream
        memory = SpareMemory.acquire(
            device, stream, max(math.prod(shape) * dtype.itemsize, SMALLEST)
        )
        array = DeviceArray(device, memory.address, shape, dtype, stream=stream)
        array.spare = memory
        weakref.finalize(array, memory.give_back).atexit = False
        return array

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype.name}{list(self.shape)} on cuda:{self.device.index})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """A copy on the host."""
        if copy is False:
            raise ValueError("an array on a GPU cannot be read without a copy")
        array = np.empty(self.shape, self.dtype)
        if array.nbytes:
            with self.device.use(self.stream):
                self.device.read(array, self.address)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of the memory itself, for work of `stream`: -1 for one that waits by itself."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("only the memory on the device itself is exported, without a copy")
        user = LEGACY_STREAM if stream is None else stream
        self.note_stream(user)
        if user != -1 and user != self.stream:
            self.device.order(self.stream, user)
        kind = self.__dlpack_device__()
        return dlpack.exported(self.address, self.shape, self.dtype, kind, self)


def lies_on_device(value: Any) -> bool:
    """Whether a value says that it is an array in the memory of a card of NVIDIA."""
    if isinstance(value, np.ndarray) or not hasattr(type(value), "__dlpack_device__"):
        return False
    if is_tensor(value):
        return _is_cuda_tensor(value)
    return int(value.__dlpack_device__()[0]) in (dlpack.CUDA, dlpack.MANAGED)


def _is_cuda_tensor(value: Any) -> bool:
    return is_tensor(value) and value.device.type == CUDA_TENSORS


def callers_stream(values: Iterable[Any]) -> int | None:
    """The stream in which a caller works who has these arrays; None where his library does not
    tell."""
    for value in values:
        if _is_cuda_tensor(value):
            streams = getattr(sys.modules["torch"], CUDA_TENSORS)
            return int(streams.current_stream(value.device).cuda_stream) or LEGACY_STREAM
        if is_from(value, "cupy"):
            return int(sys.modules["cupy"].cuda.get_current_stream().ptr) or LEGACY_STREAM
    return None


def on_device(value: Any, device: Device, stream: int | None, name: str) -> DeviceArray:
    """An input on the device: the caller's memory, or a copy of what lies on the host.

    name: of the input. Raises `InputError` for an array that lies on another card, or that cannot
    be used as it lies.
    """
    if isinstance(value, DeviceArray) and value.device is device:
        user = device.own_stream if stream is None else stream
        if value.stream != user:
            value.note_stream(user)
            device.order(value.stream, user)
        return value
    if not (is_exported(value) and lies_on_device(value)):
        array = np.asarray(as_array(value, f"input {name!r}"), order="C")
        copied = DeviceArray.allocated(device, array.shape, array.dtype, stream)
        if array.nbytes:
            with device.use(stream):
                device.write(copied.address, array)
        return copied
    index = (value.device.index or 0) if is_tensor(value) else value.__dlpack_device__()[1]
    if int(index) != device.index:
        raise InputError(
            f"the array lies on cuda:{index}, and the program runs on cuda:{device.index}",
            place=f"input {name!r}",
            next_step=f"move it there, or compile with target=cuda:{index}",
        )
    memory = _memory_of(value, device.own_stream if stream is None else stream, name)
    if not device.owns(memory.address, math.prod(memory.shape) * memory.dtype.itemsize):
        raise InputError(
            f"the array does not lie in the memory of {device.name}",
            place=f"input {name!r}",
            next_step="give an array of the host, or compile with target=cuda",
        )
    used = DeviceArray(device, memory.address, memory.shape, memory.dtype, memory.owner, stream)
    return used if memory.address % ALIGNMENT == 0 else _copied(used, stream)


def _copied(array: DeviceArray, stream: int | None) -> DeviceArray:
    """A copy in memory of its own: kernels read several elements at once, bytes by fours."""
    device = array.device
    copied = DeviceArray.allocated(device, array.shape, array.dtype, stream)
    if array.nbytes:
        with device.use(stream):
            device.copy(copied.address, array.address, array.nbytes)
    return copied


def _memory_of(value: Any, stream: int, name: str) -> dlpack.DeviceMemory:
    """The dense memory of an exporter, or of a dense copy on its device."""
    if is_tensor(value):
        return _memory_of_tensor(value, name)
    for dense in (None, "copy"):
        if dense is not None and not hasattr(value, dense):
            continue
        exporter = value if dense is None else getattr(value, dense)()
        try:
            memory = dlpack.device_memory(exporter, stream)
        except (TypeError, ValueError, BufferError, RuntimeError) as error:
            raise InputError(
                f"a {type(value).__name__} is given whose memory cannot be used ({error})",
                place=f"input {name!r}",
                next_step="give a dense array on the card, or one on the host",
            ) from error
        if memory.is_dense:
            return memory
    raise InputError(
        "the array does not lie densely in its memory",
        place=f"input {name!r}",
        next_step="give a contiguous copy",
    )


def _memory_of_tensor(value: Any, name: str) -> dlpack.DeviceMemory:
    """That of a tensor of PyTorch, in whose current stream the program runs."""
    tensor = value.detach().resolve_conj().resolve_neg().contiguous()
    kind = str(tensor.dtype).removeprefix("torch.")
    try:
        dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    except TypeError as error:
        raise InputError(
            f"a tensor of {kind} is given, which no network takes",
            place=f"input {name!r}",
            next_step="give it in another element type",
        ) from error
    return dlpack.DeviceMemory(tensor.data_ptr(), tuple(tensor.shape), dtype, True, tensor)


def output_array(
    device: Device,
    shape: tuple[int, ...],
    dtype: np.dtype,
    stream: int | None,
    values: Iterable[Any],
) -> DeviceArray:
    """An array for an output, in memory of PyTorch's own where `values`, the inputs, are its: it
    keeps memory for the next call, and no free has to wait."""
    for value in values:
        if _is_cuda_tensor(value):
            torch = sys.modules["torch"]
            kind = getattr(torch, "bool" if dtype == np.bool_ else dtype.name, None)
            if kind is not None and (dtype.isbuiltin == 1 or dtype.name in IN_BITS):
                tensor = torch.empty(shape, dtype=kind, device=value.device)
                return DeviceArray(device, tensor.data_ptr(), shape, dtype, tensor, stream)
    return DeviceArray.reusing(device, shape, dtype, stream)
