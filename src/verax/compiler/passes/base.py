"""What a pass is: a function with a declared class and ordering needs."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable

from verax.ir.graph import Graph
from verax.records.trace import Trace


class PassClass(enum.StrEnum):
    """What a pass may do to numbers; levels are made of these."""

    exact = "exact"
    reassociates = "reassociates"
    approximates = "approximates"


@dataclasses.dataclass(frozen=True)
class Pass:
    """`run` rewrites a graph. The name is the function's; its docstring is the help text.

    after: names of passes that must have run before when they run at all.
    """

    run: Callable[[Graph], tuple[Graph, Trace]]
    kind: PassClass
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def help(self) -> str:
        return self.run.__doc__ or ""
