"""What a pass is: a function with a declared class and ordering needs."""

from __future__ import annotations

import dataclasses
import enum
from typing import Protocol

from verax.ir.graph import Graph
from verax.records.trace import Trace


class PassClass(enum.StrEnum):
    """What a pass may do to numbers; levels are made of these."""

    exact = "exact"
    reassociates = "reassociates"
    approximates = "approximates"


class Rewriting(Protocol):
    """A function that rewrites a graph, at most `limit` times (None: as often as it can)."""

    __name__: str

    def __call__(self, graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]: ...


@dataclasses.dataclass(frozen=True)
class Pass:
    """`run` rewrites a graph. The name is the function's; its docstring is the help text.

    after: names of passes that must have run before when they run at all.
    """

    run: Rewriting
    kind: PassClass
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def help(self) -> str:
        return self.run.__doc__ or ""
