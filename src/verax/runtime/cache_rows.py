"""`CacheRows`: what caches that grow hold, in buffers with room that doubles.

Rows behind `length` hold nothing. A run writes there and hands out a longer `CacheRows` on the same
buffers; whoever keeps the shorter one, as after a run that failed or was interrupted, has the rows
that it had.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program import Program

SMALLEST_ROOM = 64


@dataclasses.dataclass(frozen=True)
class CacheRows:
    """buffers: by cache [batch, heads, room, features], contiguous; length: rows that they hold."""

    buffers: Mapping[str, np.ndarray]
    length: int = 0

    @property
    def room(self) -> int:
        return next((a.shape[2] for a in self.buffers.values()), 0)

    def views(self) -> dict[str, np.ndarray]:
        """The rows, by cache."""
        return {v: a[:, :, : self.length] for v, a in self.buffers.items()}

    def copied(self) -> CacheRows:
        """The same rows in buffers of their own."""
        return rows_of(self.views())

    def with_room(self, rows: int) -> CacheRows:
        """The same with room for so many rows and one more: itself, or a copy with twice the room.
        A program is made for less than all of the room."""
        if rows < self.room:
            return self
        room = max(SMALLEST_ROOM, self.room)
        while room <= rows:
            room *= 2
        larger = {}
        for name, rows_so_far in self.views().items():
            batch, heads, _, features = rows_so_far.shape
            larger[name] = np.zeros((batch, heads, room, features), rows_so_far.dtype)
            larger[name][:, :, : self.length] = rows_so_far
        return CacheRows(larger, self.length)

    def appended(self, presents: Mapping[str, np.ndarray]) -> CacheRows:
        """With the rows of `presents`, by cache, behind those that both have."""
        length = next(a.shape[2] for a in presents.values())
        longer = self.with_room(length)
        for name, array in presents.items():
            longer.buffers[name][:, :, self.length : length] = array[:, :, self.length :]
        return CacheRows(longer.buffers, length)


def rows_of(arrays: Mapping[str, np.ndarray]) -> CacheRows:
    """Copies of caches of one length."""
    length = next((a.shape[2] for a in arrays.values()), 0)
    empty = CacheRows({v: a[:, :, :0] for v, a in arrays.items()})
    return empty.appended(arrays) if length else empty


def run_on_rows(
    program: Program,
    sized: SizedProgram,
    inputs: Mapping[str, np.ndarray],
    caches: CacheRows,
    in_place: Mapping[str, str],
) -> list[np.ndarray]:
    """A run that writes new rows behind those of `caches`; its other outputs, in order.

    inputs: the others, contiguous and of the program's types, but for one that it does not read.
    in_place: by output, the cache in which its rows lie. Raises `InputError` as `Program.run` does;
    the rows that there were stay.
    """
    unread = np.zeros(1, np.uint8)
    values = {**inputs, **caches.buffers}
    arrays = [values.get(s.name, unread) for s in program.binary.inputs]
    context = program.acquire()
    try:
        context.use(sized)
        return context.run_in_place(arrays, _reused(program, caches, in_place))
    finally:
        program.release(context)


def _reused(
    program: Program, caches: CacheRows, in_place: Mapping[str, str]
) -> Sequence[np.ndarray | None]:
    """For each output the buffer that it is made in, None where a new array is needed."""
    names = (in_place.get(s.name) for s in program.binary.outputs)
    return [None if v is None else caches.buffers[v] for v in names]
