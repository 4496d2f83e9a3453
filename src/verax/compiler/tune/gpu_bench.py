"""`GpuKernelBench`: a kernel by itself on a GPU.

Its buffers lie on the device before a turn begins, and the device's own clock counts, from before
the first kernel of a turn to behind the last: no copy, and of the host no more than one launch of
many kernels. Weights come from as many copies as the network has weights, or the cache that all
multiprocessors share takes. An emulated GPU is timed by the processor's clock.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verax.compiler.kernels.target import Target
from verax.compiler.tune.host import Host
from verax.compiler.tune.kernel_bench import (
    UNKNOWN_CACHE,
    Buffer,
    KernelBench,
    Workload,
)
from verax.runtime.gpu.arrays import DeviceArray
from verax.runtime.gpu.devices import device_of
from verax.runtime.gpu.program import GpuProgram
from verax.runtime.program import Program
from verax.runtime.program_binary import ProgramBinary

MOST_CALLS = 64
"""Calls in one program: one launch by the host, which the device may wait for, has all of them."""
MOST_CACHE = 256 << 20


class DeviceBytes:
    """Bytes on a device, or some of these."""

    def __init__(self, array: DeviceArray, start: int, end: int) -> None:
        self._array, self._start, self._end = array, start, end

    @staticmethod
    def holding(content: np.ndarray, target: Target, card: int) -> DeviceBytes:
        """A copy of bytes of the host. Raises `InputError` where there is no memory for it."""
        device = device_of(target.name, card)
        array = DeviceArray.allocated(device, content.shape, content.dtype)
        with device.use():
            device.write(array.address, content)
        return DeviceBytes(array, 0, len(content))

    def __len__(self) -> int:
        return self._end - self._start

    def __getitem__(self, index: slice) -> DeviceBytes:
        start, end, _ = index.indices(len(self))
        return DeviceBytes(self._array, self._start + start, self._start + end)

    @property
    def array(self) -> DeviceArray:
        """The same as an array, which keeps the memory."""
        owner, address = self._array, self._array.address + self._start
        return DeviceArray(owner.device, address, (len(self),), owner.dtype, owner=owner)


class GpuKernelBench(KernelBench):
    """See the module's docstring. card: of those that NVIDIA's driver has."""

    most_calls = MOST_CALLS

    def __init__(
        self,
        workload: Workload,
        target: Target,
        host: Host,
        stop: Callable[[], bool] = lambda: False,
        card: int = 0,
    ) -> None:
        self._card = card
        super().__init__(workload, target, host, stop)

    def _cache_bytes(self, host: Host) -> int:
        if self.target.gpu != "cuda":
            return super()._cache_bytes(host)
        return min(host.caches[0] if host.caches else UNKNOWN_CACHE, MOST_CACHE)

    def _placed(self, content: np.ndarray) -> Buffer:
        return DeviceBytes.holding(content, self.target, self._card)

    def _loaded(self, binary: ProgramBinary) -> Program:
        return GpuProgram(binary, card=self._card)

    def _timed(self, program: Program, arrays: list[Buffer]) -> float:
        assert isinstance(program, GpuProgram)
        return program.time_on_device([buffer.array for buffer in arrays], [])

    def _clear(self, buffer: Buffer) -> None:
        array = buffer.array
        with array.device.use():
            array.device.zero(array.address, array.nbytes)

    def _content(self, buffer: Buffer) -> bytes:
        return np.asarray(buffer.array).tobytes()


def bench_for(
    workload: Workload,
    target: Target,
    host: Host,
    stop: Callable[[], bool] = lambda: False,
    card: int = 0,
) -> KernelBench:
    """What times the kernel of `workload` on this machine. card: of a GPU's target."""
    if target.gpu:
        return GpuKernelBench(workload, target, host, stop, card)
    return KernelBench(workload, target, host, stop)
