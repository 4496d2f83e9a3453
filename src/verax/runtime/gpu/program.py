"""`GpuProgram`: a binary loaded onto a GPU, ready to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.machine.processor import require_runs_here
from verax.runtime.execution_context import ExecutionContext
from verax.runtime.gpu.arrays import DeviceArray, on_device, output_array
from verax.runtime.gpu.calls import DeviceInputs
from verax.runtime.gpu.code import packed, unpacked
from verax.runtime.gpu.context import GpuContext
from verax.runtime.gpu.devices import device_of
from verax.runtime.gpu.loaded import LoadedKernels
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program import Program
from verax.runtime.program_binary import ProgramBinary
from verax.runtime.python_steps import PythonCall


class GpuProgram(Program):
    """A `Program` on a GPU. `run` takes and gives arrays of the host, `run_on_device` those of the
    device."""

    def __init__(
        self,
        binary: ProgramBinary,
        threads: int = 1,
        python_call: PythonCall | None = None,
        card: int = 0,
    ) -> None:
        """card: of those that NVIDIA's driver has. Raises as `Program`, and `DeviceError` where the
        driver refuses the code."""
        self.device = device_of(binary.target, card)
        super().__init__(binary, threads, python_call)

    uses_host_memory = False

    def _load(self, binary: ProgramBinary) -> Any:
        if not binary.object_code:
            return None
        code = unpacked(binary.object_code)
        weights = [content for _, content in binary.weight_regions()]
        return LoadedKernels(self.device, self.device.load(code), dict(code.segments), weights)

    def _require_runs_here(self, target: str) -> None:
        require_runs_here(target, card=self.device.index)

    def _new_context(self, threads: int) -> ExecutionContext:
        if self._library is None:
            return super()._new_context(threads)
        call, loaded = self._python_call, self._library
        arguments = (self.binary, self._weights, None, self._pools, call, threads)
        return GpuContext(loaded, *arguments)

    def code_to_save(self) -> bytes:
        """With machine code for this card."""
        if not self.binary.object_code:
            return b""
        return packed(self.device.with_machine_code(unpacked(self.binary.object_code)))

    def time_on_device(
        self, arrays: Sequence[DeviceArray], outputs: Sequence[DeviceArray]
    ) -> float:
        """Seconds of a run on arrays on the device, by its own clock, without a copy.

        For programs that can run without a step in Python, of known sizes. Raises as `run`.
        """
        context = self.acquire()
        try:
            assert isinstance(context, GpuContext), "a native program has code"
            return context.time_on_device([a.address for a in arrays], [a.address for a in outputs])
        finally:
            self.release(context)

    def poison(self, fill: int) -> None:
        """Fill every byte of the arenas that holds nothing between runs with `fill` (0 to 255)."""
        with self._lock:
            for context in self._free:
                if isinstance(context, GpuContext):
                    context.poison(fill)

    def run_on_device(
        self, inputs: DeviceInputs, sized: SizedProgram | None = None
    ) -> list[DeviceArray]:
        """Outputs on the device; shapes and dtypes are already checked. Raises as `run`."""
        stream, values = inputs.stream, inputs.originals.values()
        arrays = [inputs.arrays[s.name] for s in self.binary.inputs]
        open_sizes = self.binary.open_sizes
        if not self.is_native or (open_sizes is not None and open_sizes.counted):
            results = self.run([np.asarray(a) for a in arrays], sized)
            return [on_device(r, self.device, stream, "") for r in results]
        context = self.acquire()
        try:
            if sized is not None:
                context.use(sized)
            assert isinstance(context, GpuContext), "a native program has code"
            with self.device.use(stream):
                outputs = [
                    output_array(self.device, shape, dtype, stream, values)
                    for _, shape, dtype in context.output_specs
                ]
                addresses = [a.address for a in arrays], [a.address for a in outputs]
                context.run_on_device(*addresses, stream)
                if stream is None:
                    self.device.synchronize()  # the caller may use the inputs' memory again
        finally:
            self.release(context)
        return outputs
