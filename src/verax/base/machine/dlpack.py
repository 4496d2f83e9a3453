"""Arrays of the DLPack protocol, as any library exports them: where one lies, a copy of it, the
memory itself where that is a device's, and the same for arrays that we export.

NumPy's own reader refuses bfloat16 and floats of 8 bits, and asks no library for a copy on the
host; this one does both, by the structures of DLPack 1.x.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
from typing import Any

import ml_dtypes
import numpy as np

CPU, PINNED, ROCM_PINNED = 1, 3, 11
HOST = (CPU, PINNED, ROCM_PINNED)
"""Numbers of the kinds of memory that the processor reads."""
KINDS = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda", 14: "oneapi"}
"""Number of a kind of device -> its name."""
VERSION = (1, 1)
"""The newest version of the structures that is read here; the major number decides."""
_CODES = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_BYTES = {
    4: "bfloat16", 7: "float8_e3m4", 8: "float8_e4m3", 9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn", 11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
}  # fmt: skip
"""Number of an element type -> its name in `ml_dtypes`."""
_BOOL = 6
CUDA, MANAGED = 2, 13
"""Numbers of the kinds of memory of NVIDIA's cards: a card's own, and such as moves by itself."""
NAMES = (b"dltensor_versioned", b"dltensor")
"""Of capsules, the newer form first."""


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
# Of a capsule that is being destroyed, to which no reference may be taken.
_at = (ctypes.c_void_p, ctypes.c_char_p)
_is_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, *_at)(("PyCapsule_IsValid", ctypes.pythonapi))
_get_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, *_at)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def device_of(value: Any) -> str:
    """The device that an exporter lies on ("cuda:0"), "" for the host's memory."""
    kind, index = value.__dlpack_device__()
    return (
        "" if int(kind) in HOST else f"{KINDS.get(int(kind), f'device kind {int(kind)}')}:{index}"
    )


def host_copy(value: Any) -> np.ndarray:
    """The numbers of an exporter, in memory of their own.

    One that lies on a device is asked for a copy on the host. Raises `TypeError` or `ValueError`
    for an element type that no array has, and what the exporter raises (`BufferError` where it
    copies nothing to the host).
    """
    if device_of(value):
        capsule = value.__dlpack__(max_version=VERSION, dl_device=(CPU, 0), copy=True)
    else:
        try:
            capsule = value.__dlpack__(max_version=VERSION)
        except TypeError:  # a library from before DLPack 1.0
            capsule = value.__dlpack__()
    return _copied(capsule)


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """What an exporter has on a device. owner: keeps the memory while it is referred to."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    is_dense: bool
    owner: Any


def device_memory(value: Any, stream: int) -> DeviceMemory:
    """The memory of an exporter that lies on a card of NVIDIA, for work of a stream: the exporter
    has it wait for what fills the memory.

    Raises as `host_copy`.
    """
    try:
        capsule = value.__dlpack__(stream=stream, max_version=VERSION)
    except TypeError:  # a library from before DLPack 1.0
        capsule = value.__dlpack__(stream=stream)
    tensor = _tensor_of(capsule)
    rank = tensor.rank
    shape, is_dense = tuple(tensor.shape[:rank]) if rank else (), True
    if tensor.strides and (strides := tensor.strides[:rank]) != (usual := _usual(shape)):
        is_dense = not math.prod(shape) or all(
            stride == dense for n, stride, dense in zip(shape, strides, usual) if n > 1
        )
    # The capsule, not marked as used, frees its memory when it goes.
    address = int(tensor.data or 0) + tensor.offset
    return DeviceMemory(address, shape, _dtype(tensor), is_dense, (capsule, value))


def exported(
    address: int, shape: tuple[int, ...], dtype: np.dtype, device: tuple[int, int], owner: Any
) -> Any:
    """A capsule of a dense array on a device, which keeps `owner` until nobody uses it.

    device: kind and index. Raises `BufferError` for an element type that DLPack has not.
    """
    managed = _Managed()
    tensor = managed.tensor
    tensor.data, tensor.offset, tensor.rank = address, 0, len(shape)
    tensor.device_kind, tensor.device_id = device
    tensor.code, tensor.bits, tensor.lanes = _code(dtype), 8 * dtype.itemsize, 1
    sizes = (ctypes.c_int64 * max(2 * len(shape), 1))(*shape, *_usual(shape))
    start, step = ctypes.addressof(sizes), ctypes.sizeof(ctypes.c_int64) * len(shape)
    tensor.shape = ctypes.cast(start, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(start + step, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _DELETER
    key = ctypes.addressof(managed)
    _exports[key] = managed, sizes, owner
    return _new_capsule(key, NAMES[1], _DESTRUCTOR)


class _Managed(ctypes.Structure):
    """`DLManagedTensor`, which every version of the protocol reads."""

    _fields_ = [
        ("tensor", _DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_exports: dict[int, tuple[Any, ...]] = {}
"""What is exported, by the address of its structure."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(managed: int) -> None:
    """Who took what a capsule holds needs it no more."""
    _exports.pop(managed, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _destroy(capsule: int) -> None:
    """A capsule is gone: nobody took what it holds, if it has its name still."""
    if _is_valid_at(capsule, NAMES[1]):
        _exports.pop(_get_pointer_at(capsule, NAMES[1]), None)


_DELETER = ctypes.cast(_delete, ctypes.c_void_p).value
_DESTRUCTOR = ctypes.cast(_destroy, ctypes.c_void_p)


def _copied(capsule: Any) -> np.ndarray:
    """A copy of what a capsule holds. The capsule, not marked as used, frees its memory itself."""
    tensor = _tensor_of(capsule)
    if tensor.device_kind not in HOST:
        raise BufferError("it was exported on its device, not on the host")
    dtype, rank = _dtype(tensor), tensor.rank
    shape = tuple(tensor.shape[i] for i in range(rank))
    if not math.prod(shape):
        return np.empty(shape, dtype)
    strides = [tensor.strides[i] for i in range(rank)] if tensor.strides else _usual(shape)
    if any(stride < 0 for stride in strides):
        raise ValueError("its strides are negative")
    last = sum((n - 1) * stride for n, stride in zip(shape, strides))
    size = (last + 1) * dtype.itemsize
    memory = (ctypes.c_char * size).from_address(tensor.data + tensor.offset)
    # As integers, because NumPy cannot stride through every type of `ml_dtypes`.
    words = np.dtype(f"V{dtype.itemsize}")
    flat = np.frombuffer(memory, words)
    steps = [stride * dtype.itemsize for stride in strides]
    view = np.lib.stride_tricks.as_strided(flat, shape, steps, writeable=False)
    return np.array(view, order="C").view(dtype).reshape(shape)


def _tensor_of(capsule: Any) -> _DLTensor:
    """What a capsule holds. Raises `TypeError` for a version that is not read here."""
    if not _is_valid(capsule, NAMES[0]):
        return _DLTensor.from_address(_get_pointer(capsule, NAMES[1]))
    content = _Versioned.from_address(_get_pointer(capsule, NAMES[0]))
    if content.major != VERSION[0]:
        raise TypeError(f"it is exported as DLPack {content.major}.{content.minor}")
    tensor: _DLTensor = content.tensor
    return tensor


@functools.cache
def _code(dtype: np.dtype) -> int:
    """DLPack's number of an element type. Raises `BufferError`."""
    if dtype == np.bool_:
        return _BOOL
    own = {"i": 0, "u": 1, "f": 2, "c": 5}.get(dtype.kind) if dtype.isbuiltin == 1 else None
    by_name = {name: code for code, name in _BYTES.items()}
    code = own if own is not None else by_name.get(dtype.name)
    if code is None:
        raise BufferError(f"DLPack has no element type {dtype.name}")
    return code


def _dtype(tensor: _DLTensor) -> np.dtype:
    """The element type. Raises `TypeError`."""
    return _dtype_of(tensor.code, tensor.bits, tensor.lanes)


@functools.cache
def _dtype_of(code: int, bits: int, lanes: int) -> np.dtype:
    if lanes == 1 and code in _CODES:
        return np.dtype(f"{_CODES[code]}{bits}")
    if lanes == 1 and code == _BOOL and bits == 8:
        return np.dtype(np.bool_)
    if lanes == 1 and code in _BYTES:
        return np.dtype(getattr(ml_dtypes, _BYTES[code]))
    raise TypeError(f"its elements are of DLPack's type {code} of {bits} bits, {lanes} at a time")


def _usual(shape: tuple[int, ...]) -> list[int]:
    """Strides of a dense array in C order, in elements."""
    strides, step = [0] * len(shape), 1
    for i in reversed(range(len(shape))):
        strides[i] = step
        step *= shape[i]
    return strides
