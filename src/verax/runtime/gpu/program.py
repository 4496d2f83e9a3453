"""`GpuProgram`: a binary loaded onto a GPU, ready to run."""

from __future__ import annotations

from typing import Any

from verax.base.processor import EMULATED_GPU
from verax.runtime.execution_context import ExecutionContext
from verax.runtime.gpu.code import unpacked
from verax.runtime.gpu.context import GpuContext, LoadedKernels
from verax.runtime.gpu.device import Device
from verax.runtime.gpu.emulated import EmulatedDevice
from verax.runtime.program import Program
from verax.runtime.program_binary import ProgramBinary


class GpuProgram(Program):
    """A `Program` on a GPU. It takes and gives arrays of the host."""

    uses_host_memory = False

    def _load(self, binary: ProgramBinary) -> Any:
        if not binary.object_code:
            return None
        code, device = unpacked(binary.object_code), device_of(binary.target)
        weights = [content for _, content in binary.weight_regions()]
        return LoadedKernels(device, device.load(code), dict(code.segments), weights)

    def _new_context(self, threads: int) -> ExecutionContext:
        if self._library is None:
            return super()._new_context(threads)
        call, loaded = self._python_call, self._library
        arguments = (self.binary, self._weights, None, self._pools, call, threads)
        return GpuContext(loaded, *arguments)

    def poison(self, fill: int) -> None:
        """Fill every byte of the arenas that holds nothing between runs with `fill` (0 to 255)."""
        with self._lock:
            for context in self._free:
                if isinstance(context, GpuContext):
                    context.poison(fill)


def device_of(target: str) -> Device:
    """The device that runs code for a target. Raises `CompileError` where there is none."""
    if target == EMULATED_GPU:
        return EmulatedDevice()
    raise NotImplementedError(target)
