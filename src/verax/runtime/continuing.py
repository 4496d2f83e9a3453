"""Runs of a program that go on from where the last one ended, for streams: no array of state is
made, named or copied between two runs.

What a network remembers lies in two sets of memory. A run reads one and writes the other, and its
caller takes the other for the state only when the run has succeeded.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verax.base.arrays import address_writer
from verax.runtime.arguments import Wanted, add_outputs, contiguous_if_taken, types_of
from verax.runtime.image import CTX_ARRAYS, CTX_POOL
from verax.runtime.program import Place, Program

State = Mapping[str, np.ndarray]
_ALIGNMENT = 64


def continuation_of(program: Program) -> Continuation | None:
    """Runs of a program that go on from one another; None where nothing is remembered or a step
    runs in Python."""
    updates = {s.input: s.output for s in program.image.state}
    return Continuation(program, updates) if updates and program.is_native else None


class Continuation:
    """Runs one program for one caller at a time. updates: state -> the output that is its new
    value, by the names of the program's inputs and outputs."""

    def __init__(self, program: Program, updates: Mapping[str, str]) -> None:
        self._program = program
        inputs, outputs = types_of(program.image.inputs), types_of(program.image.outputs)
        after = {output: name for name, output in updates.items()}
        self._wanted = [s for s in inputs if s[0] not in updates]
        self._made = [s for s in outputs if s[0] not in after]
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
        self._places = [i for i in range(CTX_ARRAYS, count) if i not in self._fixed[0]]
        self._bound: Callable[[], Place | None] = lambda: None

    def run(self, values: Mapping[str, Any], state: State) -> tuple[list[np.ndarray], State] | None:
        """Outputs that are no state, in order, and the new state, which the next run overwrites
        but one; None unless `values` are arrays of exactly the types of the other inputs.

        state: every one; the very mapping that the last run gave costs nothing. Raises `InputError`
        as `Program.run` does, and then the state stays as it was.
        """
        arrays = contiguous_if_taken(values, self._wanted)
        if arrays is None:
            return None
        count = len(arrays)
        add_outputs(arrays, self._made)
        turn = 0 if state is self._sets[0] else 1 if state is self._sets[1] else self._copied(state)
        place = self._program.take()
        try:
            place.start_lost_workers()
            if self._bound() is not place or place.context[CTX_POOL] != self._pool:
                self._bind(place)
            self._write[turn](arrays)
            place.run_prepared(self._arguments[turn], arrays)
        finally:
            self._program.give_back(place)
        return arrays[count:], self._sets[1 - turn]

    def _copied(self, state: State) -> int:
        for name, array in self._sets[0].items():
            array[...] = state[name]
        return 0

    def _bind(self, place: Place) -> None:
        """Tables of addresses for either turn, with the arena, weights and workers of `place`."""
        tables = []
        for fixed in self._fixed:
            table = type(place.context).from_buffer_copy(place.context)
            for i, address in fixed.items():
                table[i] = address
            tables.append(table)
        self._write = [address_writer(t, self._places) for t in tables]
        self._arguments = [ctypes.byref(t) for t in tables]
        self._pool = place.context[CTX_POOL]
        self._bound = weakref.ref(place)  # who refers to a place is taken for its user


def _arrays(types: list[Wanted]) -> dict[str, np.ndarray]:
    """Zeros of these names, shapes and dtypes, each on a boundary of 64 bytes."""
    sizes = [math.prod(shape) * dtype.itemsize for _, shape, dtype in types]
    raw = np.zeros(sum(-(-n // _ALIGNMENT) for n in sizes) * _ALIGNMENT + _ALIGNMENT, np.uint8)
    start, made = -raw.ctypes.data % _ALIGNMENT, {}
    for (name, shape, dtype), size in zip(types, sizes, strict=True):
        made[name] = raw[start : start + size].view(dtype).reshape(shape)
        start += -(-size // _ALIGNMENT) * _ALIGNMENT
    return made
