"""The programs for many sizes that an executable has: in memory, on the disk, or made now."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from verax.base.errors import VeraxError
from verax.compiler.specialize import Specialized, Specializer
from verax.ir.graph import Graph
from verax.runtime.open_sizes import SizedProgram

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
        self._read = 0

    def serving(self, sizes: Mapping[str, int]) -> Served | None:
        """The first that serves these sizes of the symbols, of this process or kept on the disk."""
        in_order = tuple(sizes.values())
        for program in self.programs:
            if program.open_sizes.serves(in_order):
                return program, program.program.sized(in_order)
        while self._read < MAX_OPEN and len(self.programs) < MAX_OPEN:
            cached = self.specializer.cached_open(self.graph, self._read, sizes)
            if cached is None:
                break
            self._read += 1
            self.programs.append(cached)
            if cached.open_sizes.serves(in_order):
                return cached, cached.program.sized(in_order)
        return None

    def make(self, sizes: Mapping[str, int]) -> Served | None:
        """A new one, for sizes for which the network is known to be valid; None where there can be
        none, or are too many."""
        if not self.is_possible or len(self.programs) >= MAX_OPEN:
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
        self.specializer.keep_open(specialized, self.graph, len(self.programs))
        self.programs.append(specialized)
        self._read = max(self._read, len(self.programs))
        return specialized, specialized.program.sized(tuple(sizes.values()))
