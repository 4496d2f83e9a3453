"""Double-buffered state of a program, for streams: no array of state is made, named or copied
between two runs.

The state lies in two sets of buffers. A run reads one set and writes the other; the caller takes
the other as the new state only if the run has succeeded.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verax.base.arrays import address_writer
from verax.runtime.arguments import ArraySpec, add_outputs, contiguous_if_exact, types_of
from verax.runtime.program import ExecutionContext, Program
from verax.runtime.program_binary import CTX_ARRAYS, CTX_POOL

State = Mapping[str, np.ndarray]
_ALIGNMENT = 64


def state_buffers_of(program: Program) -> StateBuffers | None:
    """The state buffers of a program; None where it has no state or a step runs in Python."""
    updates = {s.input: s.output for s in program.binary.state}
    return StateBuffers(program, updates) if updates and program.is_native else None


class StateBuffers:
    """Two sets of state buffers, with which one caller at a time runs `program`.

    updates: state -> the output that is its new value, by the names of the program's inputs and
    outputs."""

    def __init__(self, program: Program, updates: Mapping[str, str]) -> None:
        self._program = program
        inputs, outputs = types_of(program.binary.inputs), types_of(program.binary.outputs)
        after = {output: name for name, output in updates.items()}
        self._input_specs = [s for s in inputs if s[0] not in updates]
        self._output_specs = [s for s in outputs if s[0] not in after]
        self._sets = tuple(_arrays([s for s in inputs if s[0] in updates]) for _ in range(2))
        read = {CTX_ARRAYS + i: s[0] for i, s in enumerate(inputs) if s[0] in updates}
        first = CTX_ARRAYS + len(inputs)
        written = {first + i: after[s[0]] for i, s in enumerate(outputs) if s[0] in after}
        self._fixed = [
            {
                **{i: self._sets[turn][v].ctypes.data for i, v in read.items()},
                **{i: self._sets[1 - turn][v].ctypes.data for i, v in written.items()},
            }
            for turn in (0, 1)
        ]
        count = first + len(outputs)
        self._caller_slots = [i for i in range(CTX_ARRAYS, count) if i not in self._fixed[0]]
        self._bound: Callable[[], ExecutionContext | None] = lambda: None

    def run(self, values: Mapping[str, Any], state: State) -> tuple[list[np.ndarray], State] | None:
        """(outputs that are no state, in order; new state); None unless `values` are arrays of
        exactly the types of the other inputs.

        The new state is valid until the second run after this one. state: all of it; nothing is
        copied if it is the mapping that the last run returned. Raises `InputError` as
        `Program.run` does, and then the state is unchanged.
        """
        arrays = contiguous_if_exact(values, self._input_specs)
        if arrays is None:
            return None
        count = len(arrays)
        add_outputs(arrays, self._output_specs)
        turn = 0 if state is self._sets[0] else 1 if state is self._sets[1] else self._copied(state)
        context = self._program.acquire()
        try:
            context.start_lost_workers()
            if self._bound() is not context or context.pointers[CTX_POOL] != self._pool:
                self._bind(context)
            self._write[turn](arrays)
            context.run_prepared(self._arguments[turn], arrays)
        finally:
            self._program.release(context)
        return arrays[count:], self._sets[1 - turn]

    def _copied(self, state: State) -> int:
        for name, array in self._sets[0].items():
            array[...] = state[name]
        return 0

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
        self._pool = context.pointers[CTX_POOL]
        self._bound = weakref.ref(context)  # a strong reference would count as a user


def _arrays(types: list[ArraySpec]) -> dict[str, np.ndarray]:
    """Zeros of these names, shapes and dtypes, each on a boundary of 64 bytes."""
    sizes = [math.prod(shape) * dtype.itemsize for _, shape, dtype in types]
    raw = np.zeros(sum(-(-n // _ALIGNMENT) for n in sizes) * _ALIGNMENT + _ALIGNMENT, np.uint8)
    start, arrays = -raw.ctypes.data % _ALIGNMENT, {}
    for (name, shape, dtype), size in zip(types, sizes, strict=True):
        arrays[name] = raw[start : start + size].view(dtype).reshape(shape)
        start += -(-size // _ALIGNMENT) * _ALIGNMENT
    return arrays
