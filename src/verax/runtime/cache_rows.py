"""`CacheRows`: what caches that grow hold, in buffers with room that doubles.

Rows behind `length` hold nothing. A run writes there and hands out a longer `CacheRows` on the same
buffers; whoever keeps the shorter one, as after a run that failed or was interrupted, has the rows
that it had. Those of a program for a GPU lie in its memory from the first run on that writes them
in place (`runtime.gpu.cache_rows`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

SMALLEST_ROOM = 64


@dataclasses.dataclass(frozen=True)
class CacheRows:
    """buffers: by cache [batch, heads, room, features], contiguous; length: rows that they hold."""

    buffers: Mapping[str, Any]
    length: int = 0

    @property
    def room(self) -> int:
        return next((a.shape[2] for a in self.buffers.values()), 0)

    def shape(self, name: str) -> tuple[int, ...]:
        """[batch, heads, length, features] of a cache."""
        batch, heads, _, features = self.buffers[name].shape
        return batch, heads, self.length, features

    def types(self) -> dict[str, np.ndarray]:
        """Arrays of the shapes and element types of the rows, by cache, which hold nothing."""
        return {
            v: np.broadcast_to(np.zeros((), a.dtype), self.shape(v))
            for v, a in self.buffers.items()
        }

    def views(self) -> dict[str, Any]:
        """The rows, by cache: whatever `numpy.asarray` takes."""
        return {v: a[:, :, : self.length] for v, a in self.buffers.items()}

    def of_length(self, length: int) -> CacheRows:
        """The same buffers with so many rows."""
        return dataclasses.replace(self, length=length)

    def copied(self) -> CacheRows:
        """The same rows in buffers of their own."""
        return rows_of({v: np.asarray(a) for v, a in self.views().items()})

    def with_room(self, rows: int) -> CacheRows:
        """The same with room for so many rows and one more: itself, or a copy with twice the room.
        A program is made for less than all of the room."""
        if rows < self.room:
            return self
        room = max(SMALLEST_ROOM, self.room)
        while room <= rows:
            room *= 2
        larger = {v: self._enlarged(a, room) for v, a in self.buffers.items()}
        return dataclasses.replace(self, buffers=larger)

    def _enlarged(self, buffer: Any, room: int) -> Any:
        """A buffer with so much room that holds the rows of one."""
        batch, heads, _, features = buffer.shape
        larger = np.zeros((batch, heads, room, features), buffer.dtype)
        larger[:, :, : self.length] = buffer[:, :, : self.length]
        return larger

    def appended(self, presents: Mapping[str, np.ndarray]) -> CacheRows:
        """With the rows of `presents`, by cache, behind those that both have."""
        length = next(a.shape[2] for a in presents.values())
        longer = self.with_room(length)
        for name, array in presents.items():
            self._write(longer.buffers[name], array[:, :, self.length :])
        return longer.of_length(length)

    def _write(self, buffer: Any, rows: np.ndarray) -> None:
        """Put rows behind those that there are."""
        buffer[:, :, self.length : self.length + rows.shape[2]] = rows


def rows_of(arrays: Mapping[str, np.ndarray]) -> CacheRows:
    """Copies of caches of one length."""
    length = next((a.shape[2] for a in arrays.values()), 0)
    empty = CacheRows({v: a[:, :, :0] for v, a in arrays.items()})
    return empty.appended(arrays) if length else empty
