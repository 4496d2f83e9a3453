"""The programs for many sizes that an executable has: in memory, on the disk, or made now."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from verax.base.errors import VeraxError
from verax.compiler.specialize import Specialized, Specializer
from verax.ir.graph import Graph
from verax.runtime.open_sizes import OpenSizes, SizedProgram
from verax.runtime.vx import NotServedError

MAX_OPEN = 8
"""How many: each serves the sizes for which its conditions hold. Sizes that none of so many serves
get programs of their own."""

Served = tuple[Specialized, SizedProgram]


class OpenPrograms:
    """Those of one network. On the disk they are numbered in the order in which they were made."""

    def __init__(self, graph: Graph, specializer: Specializer) -> None:
        self.graph, self.specializer = graph, specializer
        self.programs: list[Specialized] = []
        self.is_possible = True
        """Whether there may be more of them: until it is seen that some node cannot have any."""
        self._unread: dict[int, OpenSizes] = {}
        """Those on the disk, by number, that have not been asked for: their weights lie there."""
        self._seen = 0

    def serving(self, sizes: Mapping[str, int]) -> Served | None:
        """The first that serves these sizes of the symbols, of this process or kept on the disk."""
        in_order = tuple(sizes.values())
        for program in self.programs:
            if program.open_sizes.serves(in_order):
                return program, program.program.sized(in_order)
        for index in [i for i, open_sizes in self._unread.items() if open_sizes.serves(in_order)]:
            cached = self._cached(index, sizes)
            if cached is not None:
                return cached, cached.program.sized(in_order)
        while self._seen < MAX_OPEN and self._count < MAX_OPEN:
            cached = self._cached(self._seen, sizes)
            if cached is None and self._seen not in self._unread:
                break
            self._seen += 1
            if cached is not None:
                return cached, cached.program.sized(in_order)
        return None

    def _cached(self, index: int, sizes: Mapping[str, int]) -> Specialized | None:
        """The one of that number on the disk, if it serves these sizes."""
        self._unread.pop(index, None)
        try:
            cached = self.specializer.cached_open(self.graph, index, sizes)
        except NotServedError as error:
            self._unread[index] = error.open_sizes
            return None
        if cached is not None:
            self.programs.append(cached)
        return cached

    @property
    def _count(self) -> int:
        return len(self.programs) + len(self._unread)

    def make(self, sizes: Mapping[str, int]) -> Served | None:
        """A new one, for sizes for which the network is known to be valid; None where there can be
        none, or are too many."""
        if not self.is_possible or self._count >= MAX_OPEN:
            return None
        try:
            specialized = self.specializer.specialize_open(self.graph, sizes)
        except VeraxError:
            specialized = None
        except Exception as error:  # a program for these sizes alone answers all the same
            specialized = None
            warnings.warn(
                f"{self.graph.name or 'the network'} gets a program for each set of sizes, because "
                f"making one for many failed ({type(error).__name__}: {error}); please report it",
                stacklevel=8,
            )
        if specialized is None:
            self.is_possible = False
            return None
        self.specializer.keep_open(specialized, self.graph, self._count)
        self.programs.append(specialized)
        self._seen = max(self._seen, self._count)
        return specialized, specialized.program.sized(tuple(sizes.values()))
