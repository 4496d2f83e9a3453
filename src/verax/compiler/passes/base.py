"""What a pass is: a function with a declared class and ordering needs."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable, Collection
from typing import Any, Protocol

from verax.base.option_groups.deprecation import present_pass, present_passes
from verax.ir.graph import Graph
from verax.records.trace import Trace


class PassClass(enum.StrEnum):
    """What a pass may do to numbers; levels are made of these."""

    exact = "exact"
    reassociates = "reassociates"
    approximates = "approximates"


class RewriteFunction(Protocol):
    """A function that rewrites a graph, at most `limit` times (None: as often as it can).

    One that approximates also takes `keep`, the names of nodes that it must leave as they are.
    """

    __name__: str

    def __call__(self, graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]: ...


@dataclasses.dataclass(frozen=True)
class Pass:
    """`run` rewrites a graph. The name is the function's; its docstring is the help text.

    after: names of passes that must have run before when they run at all. allowance: what a user
    must allow (`Settings.allow`) or require the pass for it to run; "" for nothing.
    """

    run: RewriteFunction
    kind: PassClass
    after: tuple[str, ...] = ()
    allowance: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "after", present_passes(self.after))

    def apply(
        self, graph: Graph, limit: int | None = None, keep: Collection[str] = ()
    ) -> tuple[Graph, Trace]:
        """Run it. keep: names of nodes that an approximating pass leaves as they are."""
        run: Any = self.run
        if self.kind is PassClass.approximates:
            return run(graph, limit, keep=keep)
        return run(graph, limit)

    @property
    def name(self) -> str:
        return present_pass(self.run.__name__)

    @property
    def example(self) -> Callable[[], Graph] | None:
        """The function `example` of the pass's file, which builds a small graph that the pass
        rewrites; None where there is none."""
        module = sys.modules.get(getattr(self.run, "__module__", ""))
        build_example: Callable[[], Graph] | None = getattr(module, "example", None)
        return build_example

    @property
    def help(self) -> str:
        return self.run.__doc__ or ""


def until_done(
    run: Callable[[Graph, int | None], tuple[Graph, Trace]], graph: Graph, limit: int | None
) -> tuple[Graph, Trace]:
    """Rewrite again and again, at most `limit` times in all, until nothing is left to be done."""
    trace = Trace({})
    while True:
        graph, change = run(graph, None if limit is None else limit - trace.rewrites)
        trace = trace.then(change) if trace.values else change
        if not change.rewrites:
            return graph, trace
