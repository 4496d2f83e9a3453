"""The Gaussian error linear unit written out with erf or tanh."""

from __future__ import annotations

import math

from verax.compiler.passes.patterns import (
    ONE,
    Is,
    Made,
    NodePattern,
    OneOf,
    PatternMatch,
    Product,
    Rule,
    X,
    replace_matches,
)
from verax.ir.graph import Graph
from verax.ir.text import parse_graph
from verax.ops.pointwise.activation_smooth import Gelu
from verax.records.trace import Trace

HALF, CUBIC = Is(0.5), Is(0.044715)
ARGUMENT = Product(X, Is(math.sqrt(0.5)))
GELU = Product(X, HALF, NodePattern("Add", NodePattern("Erf", ARGUMENT), ONE))

STRETCH = Is(math.sqrt(2 / math.pi))
CURVE = OneOf(
    Product(STRETCH, NodePattern("Add", X, Product(CUBIC, X, X, X))),
    Product(STRETCH, X, NodePattern("Add", Product(CUBIC, X, X), ONE)),
)
GELU_TANH = Product(X, HALF, NodePattern("Add", NodePattern("Tanh", CURVE), ONE))


def recognize_gelu(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Recognize Gelu in its parts, with erf or with the tanh formula.

    Given:  %e = Erf()(Div()(%x, 1.4142135)); %y = Mul()(Mul()(%x, Add()(%e, 1)), 0.5)
    Result: %y = Gelu()(%x)

    The factors may stand in any order and association, and be divided by or multiplied with. Every
    constant is the float nearest to what the formula has: 1/2, 1, sqrt(2) or its reciprocal, and
    sqrt(2 / pi), 0.044715 and the third power in the tanh formula.

    Numeric effect: the same function over the reals, as near as float32 has its constants. The
    operator is within two roundings everywhere; 1 + erf cancels where x is far below 0.
    """
    rules = [
        Rule(GELU, lambda graph, match: _gelu(match, "none")),
        Rule(GELU_TANH, lambda graph, match: _gelu(match, "tanh")),
    ]
    return replace_matches(graph, limit, "recognize_gelu", rules)


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "recognize_gelu"
        input %x: float32[2, 3, 5]
        const %root: float32[] = [1.4142135381698608]
        const %one: float32[] = [1.0]
        const %half: float32[] = [0.5]
        %q: float32[2, 3, 5] = Div()(%x, %root)
        %e: float32[2, 3, 5] = Erf()(%q)
        %s: float32[2, 3, 5] = Add()(%e, %one)
        %p: float32[2, 3, 5] = Mul()(%x, %s)
        %y: float32[2, 3, 5] = Mul()(%p, %half)
        output %y
        """
    )


def _gelu(match: PatternMatch, approximate: str) -> Made:
    return Gelu(approximate=approximate), (match.bound["x"],)
