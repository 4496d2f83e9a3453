"""Double-buffered state of a program, for streams: no array of state is made, named or copied
between two runs.

The state lies in two sets of buffers. A run reads one set and writes the other; the caller takes
the other as the new state only if the run has succeeded. State that the program writes in place
(`program_binary.State.in_place`) is in both sets the same buffer: a cache of keys and values, of
which a run writes the new tokens alone. A run that fails brings its old content back; programs of
one network for several sizes hand such a buffer on, without a copy. Small inputs
and outputs have buffers, too: copying some hundred bytes takes less time than handing their address
to the code.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy import ndarray

from verax.base.arrays import address_writer
from verax.runtime.arguments import ArraySpec, add_outputs, contiguous_if_exact, types_of
from verax.runtime.execution_context import ExecutionContext, with_shapes
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program import Program
from verax.runtime.program_binary import CTX_ARENA, CTX_ARRAYS

State = Mapping[str, np.ndarray]
_ALIGNMENT = 64
MAX_COPIED_BYTES = 2048
"""Larger inputs are read, and larger outputs written, where they are."""


class RunsWithState(ABC):
    """Runs of a program that go on from one another."""

    @abstractmethod
    def run(self, values: Mapping[str, Any], state: State) -> tuple[list[np.ndarray], State] | None:
        """(outputs that are no state, in order; new state); None unless `values` are arrays of
        exactly the types of the other inputs.

        The new state is valid until the second run after this one. state: all of it; nothing is
        copied if it is the mapping that the last run returned. Raises `InputError` as
        `Program.run` does, and then the state is unchanged.
        """


class _Written(ndarray):  # type: ignore[type-arg]
    """A buffer that is written in place. It leaves this module within the state that a run gives,
    from which another program of the network may go on; users get copies."""


class ResidentArray(ABC):
    """A value of the state that lies in another device's memory; `numpy.asarray` copies it."""

    @abstractmethod
    def owned(self) -> Any:
        """As the function of this name, on the device."""


def owned(array: Any) -> Any:
    """A value of the state that no further run changes: itself if it is written in place, of which
    whoever holds it decides."""
    if isinstance(array, ResidentArray):
        return array.owned()
    return array if type(array) is _Written else np.array(array)


def writable(array: Any) -> Any:
    """A buffer that may be written in place: `array` if it is one, or a copy of it. What lies on a
    device is handed on: its program copies what it does not write in place."""
    if type(array) is _Written or isinstance(array, ResidentArray):
        return array
    (buffer,) = _arrays([("", array.shape, array.dtype)]).values()
    if array.any():  # pages of zeros are not touched
        buffer[...] = array
    return buffer.view(_Written)


class StateBuffers(RunsWithState):
    """Two sets of state buffers, with which one caller at a time runs `program`.

    updates: state -> the output that is its new value, by the names of the program's inputs and
    outputs. in_place: states that have one buffer for both."""

    def __init__(
        self,
        program: Program,
        updates: Mapping[str, str],
        in_place: Collection[str] = (),
        sized: SizedProgram | None = None,
    ) -> None:
        self._program, self._sized = program, sized
        inputs, outputs = types_of(program.binary.inputs), types_of(program.binary.outputs)
        if sized is not None:
            inputs = with_shapes(program.binary.inputs, sized.inputs)
            outputs = with_shapes(program.binary.outputs, sized.outputs)
        after = {output: name for name, output in updates.items()}
        own_inputs = [s for s in inputs if s[0] not in updates]
        own_outputs = [s for s in outputs if s[0] not in after]
        first_set = _arrays([s for s in inputs if s[0] in updates])
        second_set = _arrays([s for s in inputs if s[0] in updates and s[0] not in in_place])
        first_set |= {v: first_set[v].view(_Written) for v in in_place}
        self._sets = first_set, {v: second_set.get(v, a) for v, a in first_set.items()}
        copied_inputs = _arrays([s for s in own_inputs if _bytes(s) <= MAX_COPIED_BYTES])
        copied_outputs = _arrays([s for s in own_outputs if _bytes(s) <= MAX_COPIED_BYTES])
        self._input_count = len(own_inputs)
        self._copied_inputs = [(*s, copied_inputs[s[0]]) for s in inputs if s[0] in copied_inputs]
        self._output_copies = [
            (i, copied_outputs[s[0]].copy)
            for i, s in enumerate(own_outputs)
            if s[0] in copied_outputs
        ]
        self._input_specs = [s for s in own_inputs if s[0] not in copied_inputs]
        self._output_specs = [s for s in own_outputs if s[0] not in copied_outputs]
        first = CTX_ARRAYS + len(inputs)
        names = [*(s[0] for s in inputs), *(after.get(s[0], "") for s in outputs)]
        self._slots = {
            v: [CTX_ARRAYS + i for i, name in enumerate(names) if name == v] for v in in_place
        }
        self._fixed: list[dict[int, int]] = []
        for turn in (0, 1):
            read = {**self._sets[turn], **copied_inputs}
            written = {o: self._sets[1 - turn][v] for o, v in after.items()} | copied_outputs
            slots = [(CTX_ARRAYS + i, read.get(s[0])) for i, s in enumerate(inputs)]
            slots += [(first + i, written.get(s[0])) for i, s in enumerate(outputs)]
            self._fixed.append({i: a.ctypes.data for i, a in slots if a is not None})
        self._caller_slots = [i for i, a in slots if a is None]
        self._bound: Callable[[], ExecutionContext | None] = lambda: None
        self._half_adopted: set[str] = set()

    def run(self, values: Mapping[str, Any], state: State) -> tuple[list[np.ndarray], State] | None:
        """As that of `RunsWithState`."""
        if len(values) != self._input_count:
            return None
        for name, shape, dtype, buffer in self._copied_inputs:
            array = values.get(name)
            if type(array) is not ndarray or array.shape != shape:
                return None
            if array.dtype is not dtype and array.dtype != dtype:
                return None
            buffer[...] = array
        arrays: list[np.ndarray] = []
        if self._caller_slots:
            large_inputs = contiguous_if_exact(values, self._input_specs)
            if large_inputs is None:
                return None
            arrays = large_inputs
            add_outputs(arrays, self._output_specs)
        turn = 0 if state is self._sets[0] else 1 if state is self._sets[1] else self._copied(state)
        context = self._program.acquire()
        try:
            context.start_lost_workers()
            if self._sized is not None:
                context.use(self._sized)
            same = context.pool_handle, context.pointers[CTX_ARENA]
            if self._bound() is not context or same != self._bound_to:
                self._bind(context)
            if arrays:
                self._write[turn](arrays)
            context.run_prepared(self._arguments[turn], arrays)
        finally:
            self._program.release(context)
        outputs = arrays[len(self._input_specs) :]
        for i, copy in self._output_copies:
            outputs.insert(i, copy())
        return outputs, self._sets[1 - turn]

    def _copied(self, state: State) -> int:
        """The first set, with the content of `state`; its buffers that are written in place become
        this program's own. Of other arrays there are new ones: those so far may be somebody else's
        by now (`StatefulExecutable.exchange_state`)."""
        for name, array in self._sets[0].items():
            source = state[name]
            if name not in self._slots:
                array[...] = source
            elif source is not array or name in self._half_adopted:
                self._adopt(name, writable(source))
        return 0

    def _adopt(self, name: str, buffer: ndarray) -> None:
        """Ctrl-C may come at any line: then it is done again."""
        self._half_adopted.add(name)
        self._bound = lambda: None
        for buffers, fixed in zip(self._sets, self._fixed, strict=True):
            buffers[name] = buffer
            fixed.update(dict.fromkeys(self._slots[name], buffer.ctypes.data))
        self._half_adopted.remove(name)

    def _bind(self, context: ExecutionContext) -> None:
        """Tables of pointers for both directions, with the arena, weights and workers of
        `context`."""
        tables = []
        for fixed in self._fixed:
            table = type(context.pointers).from_buffer_copy(context.pointers)
            for i, address in fixed.items():
                table[i] = address
            tables.append(table)
        self._write = [address_writer(t, self._caller_slots) for t in tables]
        self._arguments = [ctypes.byref(t) for t in tables]
        self._bound_to = context.pool_handle, context.pointers[CTX_ARENA]
        self._bound = weakref.ref(context)  # a strong reference would count as a user


def _arrays(types: list[ArraySpec]) -> dict[str, np.ndarray]:
    """Zeros of these names, shapes and dtypes, each on a boundary of 64 bytes."""
    sizes = [_bytes(spec) for spec in types]
    raw = np.zeros(sum(-(-n // _ALIGNMENT) for n in sizes) * _ALIGNMENT + _ALIGNMENT, np.uint8)
    start, arrays = -raw.ctypes.data % _ALIGNMENT, {}
    for (name, shape, dtype), size in zip(types, sizes, strict=True):
        arrays[name] = raw[start : start + size].view(dtype).reshape(shape)
        start += -(-size // _ALIGNMENT) * _ALIGNMENT
    return arrays


def _bytes(spec: ArraySpec) -> int:
    _, shape, dtype = spec
    return math.prod(shape) * dtype.itemsize
