"""Sizes that data decide: between two native segments a kernel's count becomes a size of the table,
and what follows from it is computed: offsets of buffers, entries of the table, shapes of outputs.

Buffers of such sizes lie behind all others, in slots: buffers of one slot never live at the same
time, and it has room for the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from verax.ir.assumptions import RELATIONS
from verax.runtime.open_sizes import OpenSizes, room_of


class CountsNotServedError(Exception):
    """A program was run on data whose counts it does not serve: it has to be run on another.

    counts: by the network's name, as far as they were counted."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        super().__init__(f"no code for the counts {dict(counts)}")
        self.counts = dict(counts)


class CountedStage:
    """What becomes known with one more counted size. See `CountedSize`."""

    def __init__(self, sizes: OpenSizes, stage: int) -> None:
        """stage: how many sizes are counted by then, 1 for the first."""
        self.counted = sizes.counted[stage - 1]
        self._open, self._stage = sizes, stage
        self._entry_indices = sizes.entries_of(stage)
        self.entries = np.array([sizes.size_count + i for i in self._entry_indices], np.int64)
        self._slots = _slots(sizes, sizes.buffers_of(stage))
        self.outputs = [i for i, s in enumerate(sizes.outputs) if sizes.stage(*s) == stage]
        self._shapes = [sizes.outputs[i] for i in self.outputs]
        self._conditions = [c for c in sizes.count_conditions if sizes.stage(c[0], c[2]) == stage]

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether the code serves these sizes: conditions hold, and all that follows from the count
        is a size (a quotient by a count of 0 is none)."""
        try:
            differences, elements = self._differences(*sizes), self._elements(*sizes)
            extents = (*self._limit(*sizes), *self._bytes(*sizes), *self._dims(*sizes))
        except ArithmeticError:
            return False
        return min(extents) >= 0 and all(
            RELATIONS[relation](difference) or count == 0
            for difference, count, (_, relation, _) in zip(
                differences, elements, self._conditions, strict=True
            )
        )

    def limit(self, sizes: Sequence[int]) -> int:
        """What its count can be at most."""
        return self._limit(*sizes)[0]

    def layout(
        self, sizes: Sequence[int], start: int
    ) -> tuple[tuple[int, ...], int, list[tuple[int, int]]]:
        """Values of the entries for buffers that lie from `start` on; where these end; those
        (offset, bytes) that must hold zeros."""
        offsets: dict[int, int] = {}
        zeros = []
        nbytes = iter(self._bytes(*sizes))
        for members, keeps_zeros in self._slots:
            room = room_of(max(next(nbytes) for _ in members))
            for index in members:
                offsets[index] = start
            if keeps_zeros:
                zeros.append((start, room))
            start += room
        return self._values(offsets, *sizes), start, zeros

    def shapes(self, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """Of the outputs that are known now, `outputs`."""
        dims = iter(self._dims(*sizes))
        return [tuple(next(dims) for _ in shape) for shape in self._shapes]

    def make_functions(self) -> None:
        """Make what is otherwise made when it is used."""
        _ = self._limit, self._bytes, self._values, self._dims, self._differences, self._elements

    @cached_property
    def _limit(self) -> Callable[..., tuple[int, ...]]:
        return self._function("limit", lambda: [self.counted.limit])

    @cached_property
    def _bytes(self) -> Callable[..., tuple[int, ...]]:
        numbers = [i for members, _ in self._slots for i in members]
        return self._function("bytes", lambda: [self._open.buffers[i].nbytes for i in numbers])

    @cached_property
    def _values(self) -> Callable[..., tuple[int, ...]]:
        indices, entries = self._entry_indices, self._open.entries
        return self._function("values", lambda: [entries[i] for i in indices], "offsets")

    @cached_property
    def _dims(self) -> Callable[..., tuple[int, ...]]:
        return self._function("dims", lambda: [d for shape in self._shapes for d in shape])

    @cached_property
    def _differences(self) -> Callable[..., tuple[int, ...]]:
        return self._function("differences", lambda: [c[0] for c in self._conditions])

    @cached_property
    def _elements(self) -> Callable[..., tuple[int, ...]]:
        return self._function("elements", lambda: [c[2] or "1" for c in self._conditions])

    def _function(
        self, name: str, expressions: Callable[[], Sequence[str]], *first: str
    ) -> Callable[..., tuple[int, ...]]:
        name = f"{name} behind count {self._stage}"
        return self._open.function(name, expressions, *first, counted=True)


def serves_counts(open_sizes: OpenSizes, sizes: Sequence[int], counts: Mapping[str, int]) -> bool:
    """Whether a program that serves `sizes` serves the counts, as far as these are known."""
    values = [*sizes, *[0] * (open_sizes.size_count - len(sizes))]
    for index, counted in enumerate(open_sizes.counted, 1):
        if counted.name not in counts:
            break
        values[counted.symbol] = counts[counted.name]
        if not CountedStage(open_sizes, index).holds(values):
            return False
    return True


def _slots(sizes: OpenSizes, numbers: Sequence[int]) -> list[tuple[list[int], bool]]:
    """Buffers that may lie at one place, and whether it must hold zeros at first: such a buffer
    shares its place with no other."""
    slots: list[tuple[list[int], bool]] = []
    for index in numbers:
        buffer = sizes.buffers[index]
        free = (
            members
            for members, keeps_zeros in slots
            if not keeps_zeros and buffer.conflicts_none(members)
        )
        members = None if buffer.keeps_zeros else next(free, None)
        if members is None:
            slots.append(([index], buffer.keeps_zeros))
        else:
            members.append(index)
    return slots
