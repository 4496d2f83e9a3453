"""State that stays on a GPU between runs: no byte of it goes to the host and back.

As those of `state_buffers`, two sets of buffers take turns, and state that the program writes in
place is in both sets one buffer. They lie in the device's memory. A buffer is filled from the host
when the state is set, and read when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from verax.runtime.arguments import ArraySpec, contiguous_if_exact, types_of
from verax.runtime.execution_context import with_shapes
from verax.runtime.gpu.arrays import DeviceArray
from verax.runtime.gpu.context import GpuContext
from verax.runtime.gpu.device import Device
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.state_buffers import ResidentArray, RunsWithState

if TYPE_CHECKING:
    from verax.runtime.gpu.program import GpuProgram

State = Mapping[str, Any]


class StateArray(DeviceArray, ResidentArray):
    """A buffer of state on a device. in_place: whether runs write it in place: then whoever holds
    it decides who goes on in it."""

    in_place = False

    @staticmethod
    def of_type(device: Device, spec: ArraySpec, in_place: bool = False) -> StateArray:
        """A new one, filled with zeros. Raises `InputError` where there is no memory."""
        _, shape, dtype = spec
        memory = DeviceArray.allocated(device, shape, dtype)
        array = StateArray(device, memory.address, shape, dtype, owner=memory)
        array.in_place = in_place
        return array

    def owned(self) -> StateArray:
        """See `ResidentArray`."""
        if self.in_place:
            return self
        copied = StateArray.of_type(self.device, ("", self.shape, self.dtype))
        copied.fill(self)
        return copied

    def fill(self, source: Any) -> None:
        """Copy an array of the same type, from wherever it lies."""
        if not self.nbytes:
            return
        if isinstance(source, StateArray) and source.device is self.device:
            self.device.copy(self.address, source.address, self.nbytes)
        else:
            self.device.write(self.address, np.ascontiguousarray(source, self.dtype))


class ResidentState(RunsWithState):
    """Two sets of state buffers on a device, with which one caller at a time runs `program`.

    updates, in_place: as of `StateBuffers`.
    """

    def __init__(
        self,
        program: GpuProgram,
        updates: Mapping[str, str],
        in_place: Collection[str] = (),
        sized: SizedProgram | None = None,
    ) -> None:
        """Raises `InputError` where there is no memory."""
        self._program, self._sized, self._device = program, sized, program.device
        inputs, outputs = types_of(program.binary.inputs), types_of(program.binary.outputs)
        if sized is not None:
            inputs = with_shapes(program.binary.inputs, sized.inputs)
            outputs = with_shapes(program.binary.outputs, sized.outputs)
        self._input_names = [name for name, _, _ in inputs]
        self._input_specs = [s for s in inputs if s[0] not in updates]
        after = {output: name for name, output in updates.items()}
        self._written = [after.get(name) for name, _, _ in outputs]
        self._state_specs = {s[0]: s for s in inputs if s[0] in updates}
        self._in_place = frozenset(in_place)
        first = {v: self._new(v) for v in self._state_specs}
        second = {v: a if v in self._in_place else self._new(v) for v, a in first.items()}
        self._sets = first, second

    def _new(self, name: str) -> StateArray:
        return StateArray.of_type(self._device, self._state_specs[name], name in self._in_place)

    def run(self, values: Mapping[str, Any], state: State) -> tuple[list[np.ndarray], State] | None:
        """As that of `RunsWithState`; the new state lies on the device."""
        if len(values) != len(self._input_specs):
            return None
        arguments = contiguous_if_exact(values, self._input_specs)
        if arguments is None:
            return None
        turn = 0 if state is self._sets[0] else 1 if state is self._sets[1] else self._copied(state)
        by_name = dict(zip((s[0] for s in self._input_specs), arguments), **self._sets[turn])
        new_state = self._sets[1 - turn]
        written = [None if v is None else new_state[v] for v in self._written]
        context = self._program.acquire()
        try:
            if self._sized is not None:
                context.use(self._sized)
            assert isinstance(context, GpuContext), "a native program has code"
            outputs = context.run_resident([by_name[v] for v in self._input_names], written)
        finally:
            self._program.release(context)
        return outputs, new_state

    def _copied(self, state: State) -> int:
        """The first set, with the content of `state`. Its buffers that are written in place become
        this program's own; others' content is copied, to new buffers where the old ones, written in
        place, may be somebody else's by now."""
        for name, buffer in self._sets[0].items():
            source = state[name]
            if name in self._in_place:
                if not self._is_buffer(source):
                    source, content = self._new(name), source
                    source.fill(content)
                for buffers in self._sets:
                    buffers[name] = source
            elif source is not buffer:
                buffer.fill(source)
        return 0

    def _is_buffer(self, source: Any) -> bool:
        """Whether runs of this program may write a value of the state in place."""
        return isinstance(source, StateArray) and source.in_place and source.device is self._device


def resident_state_of(
    program: GpuProgram,
    updates: Mapping[str, str],
    in_place: Collection[str],
    sized: SizedProgram | None,
) -> ResidentState | None:
    """The state buffers of a native program; None where data decide sizes."""
    open_sizes = program.binary.open_sizes
    if open_sizes is not None and open_sizes.counted:
        return None
    return ResidentState(program, updates, in_place, sized)
