"""Softmax and LogSoftmax written out with exp, log and sums."""

from __future__ import annotations

from verax.compiler.passes.patterns import (
    Made,
    NodePattern,
    PatternMatch,
    Product,
    Reduce,
    Rule,
    X,
    over,
    replace_matches,
    trailing,
)
from verax.ir.graph import Graph
from verax.ir.text import parse_graph
from verax.ops.sums.softmax import LogSoftmax, Softmax
from verax.records.trace import Trace

BELOW = NodePattern("Sub", X, Reduce("ReduceMax", X))
TOTAL = Reduce("ReduceSum", NodePattern("Exp", BELOW))
SOFTMAX = Product(NodePattern("Exp", BELOW), over(TOTAL))
LOG_SOFTMAX = NodePattern("Sub", BELOW, NodePattern("Log", TOTAL))


def recognize_softmax(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Recognize Softmax and LogSoftmax in their parts.

    Given:  %e = Exp()(Sub()(%x, ReduceMax()(%x, [1]))); %y = Div()(%e, ReduceSum()(%e, [1]))
    Result: %y = Softmax(axis=1)(%x)

    Maximum and sum are over the same axes and keep them: one axis, or the last ones together.
    exp(x) / sum(exp(x)) without the maximum is left alone. It overflows where this does not, but
    elsewhere it is the better one: x is exact, while x - max is rounded, and exp turns that into a
    relative error of small results, 13 units of roundoff for normal numbers of deviation 12.

    Numeric effect: none where the sum is divided by: the operator is these parts. A product with
    its reciprocal becomes a division, which rounds once less.
    """
    rules = [
        Rule(SOFTMAX, lambda graph, match: _along(graph, match, Softmax)),
        Rule(LOG_SOFTMAX, lambda graph, match: _along(graph, match, LogSoftmax)),
    ]
    return replace_matches(graph, limit, "recognize_softmax", rules)


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "recognize_softmax"
        input %x: float32[2, 3, 5]
        const %axis: int64[1] = [1]
        %m: float32[2, 1, 5] = ReduceMax()(%x, %axis)
        %d: float32[2, 3, 5] = Sub()(%x, %m)
        %e: float32[2, 3, 5] = Exp()(%d)
        %s: float32[2, 1, 5] = ReduceSum()(%e, %axis)
        %y: float32[2, 3, 5] = Div()(%e, %s)
        output %y
        """
    )


def _along(graph: Graph, match: PatternMatch, op: type[Softmax] | type[LogSoftmax]) -> Made | None:
    axes = match.bound["axes"]
    if len(axes) == 1:
        return op(axis=axes[0]), (match.bound["x"],)
    if trailing(graph, match) is None:
        return None
    return op(axis=axes[0], flatten=True), (match.bound["x"],)
