"""Caches that grow in a GPU's memory: their rows are copied to the host when somebody asks for
them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from verax.runtime.cache_rows import CacheRows
from verax.runtime.gpu.arrays import DeviceArray
from verax.runtime.gpu.device import Device


@dataclasses.dataclass(frozen=True)
class DeviceCacheRows(CacheRows):
    """As `CacheRows`, whose buffers are of type `DeviceArray`, all on one device."""

    buffers: Mapping[str, DeviceArray]
    length: int = 0

    def views(self) -> dict[str, Any]:
        return {v: _RowsOfCache(a, self.length) for v, a in self.buffers.items()}

    def _enlarged(self, buffer: DeviceArray, room: int) -> DeviceArray:
        batch, heads, _, features = buffer.shape
        shape, device = (batch, heads, room, features), buffer.device
        larger = DeviceArray.allocated(device, shape, buffer.dtype)
        nbytes = self.length * features * buffer.dtype.itemsize
        if nbytes:
            with device.use():
                for (_, old), (_, new) in zip(_matrices(buffer), _matrices(larger), strict=True):
                    device.copy(new, old, nbytes)
        return larger

    def _write(self, buffer: DeviceArray, rows: np.ndarray) -> None:
        if not rows.size:
            return
        behind = self.length * buffer.shape[3] * buffer.dtype.itemsize
        with buffer.device.use():
            for index, address in _matrices(buffer):
                buffer.device.write(address + behind, np.ascontiguousarray(rows[index]))


@dataclasses.dataclass(frozen=True)
class _RowsOfCache:
    """The first rows of a buffer, which `numpy.asarray` copies to the host."""

    buffer: DeviceArray
    length: int

    @property
    def dtype(self) -> np.dtype:
        return self.buffer.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        batch, heads, _, features = self.buffer.shape
        return batch, heads, self.length, features

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not self.length:
            return np.zeros(self.shape, self.dtype if dtype is None else dtype)
        rows = np.asarray(self.buffer)[:, :, : self.length]
        return rows if dtype is None else rows.astype(dtype, copy=False)


def _matrices(buffer: DeviceArray) -> Iterator[tuple[tuple[int, int], int]]:
    """((sequence, head), address of its first row)."""
    batch, heads, room, features = buffer.shape
    step = room * features * buffer.dtype.itemsize
    for i, index in enumerate(itertools.product(range(batch), range(heads))):
        yield index, buffer.address + i * step


def on_device(caches: CacheRows, device: Device) -> DeviceCacheRows:
    """The same caches in the memory of `device`. Raises `InputError` where there is none."""
    if isinstance(caches, DeviceCacheRows) and all(
        a.device is device for a in caches.buffers.values()
    ):
        return caches
    shapes = {v: (*caches.shape(v)[:2], caches.room, caches.shape(v)[3]) for v in caches.buffers}
    there = DeviceCacheRows(
        {v: DeviceArray.allocated(device, s, caches.buffers[v].dtype) for v, s in shapes.items()}
    )
    for name, rows in caches.views().items():
        there._write(there.buffers[name], np.asarray(rows))
    return DeviceCacheRows(there.buffers, caches.length)
