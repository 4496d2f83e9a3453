"""A value times its own gate: Swish (SiLU) and HardSwish."""

from __future__ import annotations

import numpy as np

from verax.compiler.passes.patterns import (
    ONE,
    Is,
    Made,
    NodePattern,
    NumberPattern,
    OneOf,
    Pattern,
    PatternMatch,
    Product,
    Rule,
    X,
    over,
    replace_matches,
)
from verax.ir.graph import Graph
from verax.ir.text import parse_graph
from verax.ops.pointwise.activation import HardSwish
from verax.ops.pointwise.activation_smooth import Swish
from verax.records.trace import Trace


def _gated(argument: Pattern) -> Pattern:
    """x sigmoid(argument), also with the sigmoid as 1 / (1 + exp(-argument))."""
    negative = OneOf(NodePattern("Neg", argument), Product(argument, Is(-1.0)))
    written_out = over(NodePattern("Add", ONE, NodePattern("Exp", negative)))
    return OneOf(Product(X, NodePattern("Sigmoid", argument)), Product(X, written_out))


SWISH = OneOf(_gated(X), _gated(Product(X, NumberPattern("alpha"))))
SIXTHS = (1 / 6, float(np.float32(1 / 6)))
HARD_SWISH = OneOf(
    *(Product(X, NodePattern("HardSigmoid", X, alpha=sixth, beta=0.5)) for sixth in SIXTHS)
)


def recognize_swish(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Recognize Swish (SiLU) in x sigmoid(alpha x), and HardSwish in x HardSigmoid(x).

    Given:  %g = Sigmoid()(Mul()(%x, 1.702)); %y = Mul()(%x, %g)
    Result: %y = Swish(alpha=1.702)(%x)

    alpha is one number or missing. HardSwish needs the slope 1/6 and the offset 1/2. Its other way,
    x clip(x + 3, 0, 6) / 6, is left alone: x + 3 is exact near -3, where x / 6 + 1/2 is not.

    Numeric effect: the same function over the reals, within the rounding of the parts.
    """
    rules = [
        Rule(SWISH, lambda graph, match: _swish(match)),
        Rule(HARD_SWISH, lambda graph, match: (HardSwish(), (match.bound["x"],))),
    ]
    return replace_matches(graph, limit, "recognize_swish", rules)


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "recognize_swish"
        input %x: float32[2, 3, 5]
        const %alpha: float32[] = [1.75]
        %p: float32[2, 3, 5] = Mul()(%x, %alpha)
        %g: float32[2, 3, 5] = Sigmoid()(%p)
        %y: float32[2, 3, 5] = Mul()(%x, %g)
        output %y
        """
    )


def _swish(match: PatternMatch) -> Made:
    return Swish(alpha=match.bound.get("alpha", 1.0)), (match.bound["x"],)
