"""The table of a program of open sizes: what it reads where a program of one size has numbers.

It is an array of int64, computed once for each set of sizes: first the sizes of the graph's symbols
"d0", "d1", ..., which kernels make their own of (`kernels.sizes`); then expressions over them that
the calls of kernels need: offsets, numbers of work items, contents of tensors of sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verax.compiler.kernels.sizes import Size, entry
from verax.compiler.place.memory import Lifetime
from verax.compiler.place.storage import Buffer, MemorySpace
from verax.ir.assumptions import assumed_sizes
from verax.ir.dim import evaluated
from verax.runtime.open_sizes import ArenaBuffer

ENTRY_BYTES = 8


class SizeTable:
    """Entries of the table, in order; equal ones once."""

    def __init__(self, symbol_count: int) -> None:
        self.entries: list[Size | Buffer] = [entry(i) for i in range(symbol_count)]
        self.symbol_count = symbol_count
        self._indices: dict[Size, int] = {entry(i): i for i in range(symbol_count)}
        self._lifetimes: list[tuple[Buffer, Lifetime]] = []
        self._numbers: dict[Buffer, int] = {}
        self._offsets: dict[Buffer, int] = {}

    def index(self, size: Size) -> int:
        """The entry that holds `size`."""
        if size not in self._indices:
            self._indices[size] = len(self.entries)
            self.entries.append(size)
        return self._indices[size]

    def block(self, sizes: Sequence[Size]) -> Buffer:
        """Entries that hold `sizes` one after the earlier, as a tensor of int64."""
        buffer = Buffer(MemorySpace.sizes, ENTRY_BYTES * len(sizes))
        buffer.offset = ENTRY_BYTES * len(self.entries)
        self.entries += sizes
        return buffer

    # --- buffers of the arena

    def place_buffers(self, lifetimes: Mapping[Buffer, Lifetime]) -> None:
        """Buffers get their offsets in this order: those that keep their borders, then the largest
        first, for the sizes there are now."""
        sizes = assumed_sizes()

        def rank(item: tuple[Buffer, Lifetime]) -> tuple[bool, int, Lifetime]:
            buffer, alive = item
            return not buffer.bordered, -evaluated(buffer.nbytes, sizes), alive

        self._lifetimes = sorted(lifetimes.items(), key=rank)
        self._numbers = {buffer: i for i, (buffer, _) in enumerate(self._lifetimes)}

    def has_offset(self, buffer: Buffer) -> bool:
        """Whether the table holds the buffer's offset."""
        return buffer in self._numbers

    def offset_of(self, buffer: Buffer) -> int:
        """The entry that holds the offset of a buffer."""
        if buffer not in self._offsets:
            self._offsets[buffer] = len(self.entries)
            self.entries.append(buffer)
        return self._offsets[buffer]

    def buffers(self) -> tuple[ArenaBuffer, ...]:
        """The buffers in their order, as the runtime places them."""
        spans = np.array([alive for _, alive in self._lifetimes], np.int64).reshape(-1, 2)
        is_plain = np.array([not buffer.bordered for buffer, _ in self._lifetimes], bool)
        placed = []
        for i, (buffer, (first, last)) in enumerate(self._lifetimes):
            earlier = spans[:i]
            meets = (first <= earlier[:, 1]) & (earlier[:, 0] <= last) & is_plain[:i]
            conflicts = tuple(np.flatnonzero(meets).tolist())
            placed.append(ArenaBuffer(str(buffer.nbytes), conflicts, buffer.bordered))
        return tuple(placed)

    def texts(self) -> tuple[str, ...]:
        """Every entry behind the symbols, as `OpenSizes` has it."""
        return tuple(
            f"@{self._numbers[e]}" if isinstance(e, Buffer) else str(e)
            for e in self.entries[self.symbol_count :]
        )
