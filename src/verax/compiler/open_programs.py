"""The programs for many sizes that an executable has: in memory, on the disk, or made now."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from verax.base.errors import VeraxError
from verax.compiler.specialize import Specializer
from verax.compiler.specialized import Specialized
from verax.ir.graph import Graph
from verax.runtime.counted_sizes import serves_counts
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
        self._refused_empty: set[frozenset[str]] = set()

    def serving(
        self,
        sizes: Mapping[str, int],
        counts: Mapping[str, int] | None = None,
        attempted: Sequence[Specialized] = (),
    ) -> Served | None:
        """The first that serves these sizes of the symbols, of this process or kept on the disk.

        counts: those that it has to serve, as far as they are known; attempted: that do not.
        """
        in_order = tuple(sizes.values())
        for program in self.programs:
            if not any(program is one for one in attempted) and _serves(program, sizes, counts):
                return program, program.program.sized(in_order)
        for index in [i for i, open_sizes in self._unread.items() if open_sizes.serves(in_order)]:
            cached = self._cached(index, sizes, counts)
            if cached is not None and _serves(cached, sizes, counts):
                return cached, cached.program.sized(in_order)
        while self._seen < MAX_OPEN and self._count < MAX_OPEN:
            cached = self._cached(self._seen, sizes, counts)
            if cached is None and self._seen not in self._unread:
                break
            self._seen += 1
            if cached is not None and _serves(cached, sizes, counts):
                return cached, cached.program.sized(in_order)
        return None

    def _cached(
        self, index: int, sizes: Mapping[str, int], counts: Mapping[str, int] | None
    ) -> Specialized | None:
        """The one of that number on the disk, if it serves these sizes."""
        self._unread.pop(index, None)
        try:
            cached = self.specializer.cached_open(self.graph, index, sizes, counts)
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
        specialized = self._specialized(sizes, {})
        if specialized is None:
            self.is_possible = False
            return None
        return self._keep(specialized, sizes)

    def serving_counts(
        self, sizes: Mapping[str, int], counts: Mapping[str, int], attempted: Sequence[Specialized]
    ) -> Served | None:
        """One that has not been attempted and serves these sizes and these counts, as far as they
        are known; made now if there is none and one more may be held."""
        served = self.serving(sizes, counts, attempted)
        empty = frozenset(name for name, count in counts.items() if not count)
        if served is not None or self._count >= MAX_OPEN or empty in self._refused_empty:
            return served
        specialized = self._specialized(sizes, counts)
        if specialized is None or not _serves(specialized, sizes, counts):
            self._refused_empty.add(empty)  # it has to be computed from nothing: no kernel does
            return None
        return self._keep(specialized, sizes)

    def prefer(self, program: Specialized) -> None:
        """It is the first that is asked from now on."""
        self.programs.sort(key=lambda one: one is not program)

    def _specialized(
        self, sizes: Mapping[str, int], counts: Mapping[str, int]
    ) -> Specialized | None:
        try:
            return self.specializer.specialize_open(self.graph, sizes, counts)
        except VeraxError:
            return None
        except Exception as error:  # a program for these sizes alone answers all the same
            if counts:  # for which the network may be invalid: that one tells
                return None
            warnings.warn(
                f"{self.graph.name or 'the network'} gets a program for each set of sizes, because "
                f"making one for many failed ({type(error).__name__}: {error}); please report it",
                stacklevel=9,
            )
            return None

    def _keep(self, specialized: Specialized, sizes: Mapping[str, int]) -> Served:
        self.specializer.keep_open(specialized, self.graph, self._count)
        self.programs.append(specialized)
        self._seen = max(self._seen, self._count)
        return specialized, specialized.program.sized(tuple(sizes.values()))


def _serves(
    program: Specialized, sizes: Mapping[str, int], counts: Mapping[str, int] | None
) -> bool:
    in_order = tuple(sizes.values())
    open_sizes = program.open_sizes
    return open_sizes.serves(in_order) and serves_counts(open_sizes, in_order, counts or {})
