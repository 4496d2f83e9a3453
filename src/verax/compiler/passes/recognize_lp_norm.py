"""Division by a guarded norm written out in its parts."""

from __future__ import annotations

import math

import numpy as np

from verax.compiler.passes.patterns import (
    Anything,
    Inverse,
    Made,
    NodePattern,
    NumberPattern,
    OneOf,
    Pattern,
    PatternMatch,
    Product,
    Reduce,
    Rule,
    X,
    over,
    over_root,
    replace_matches,
    root,
    square,
)
from verax.ir.graph import Graph
from verax.ir.text import parse_graph
from verax.numerics.error_model import U
from verax.ops.sums.response_normalization import LpNormalization
from verax.records.trace import Trace

SQUARES = OneOf(Reduce("ReduceSumSquare", X), Reduce("ReduceSum", square(X)))
LENGTH = OneOf(Reduce("ReduceL2", X), root(SQUARES))
TOTAL = OneOf(Reduce("ReduceL1", X), Reduce("ReduceSum", NodePattern("Abs", X)))


def _at_least(pattern: Pattern, name: str) -> Pattern:
    return OneOf(
        NodePattern("Max", pattern, NumberPattern(name)),
        NodePattern("Clip", pattern, NumberPattern(name)),
    )


def _over_spread(norm: Pattern) -> Inverse:
    """Over a norm, also where it was given the shape of x before."""
    return over(OneOf(norm, NodePattern("Expand", norm, Anything())))


EUCLIDEAN = OneOf(
    Product(X, _over_spread(_at_least(LENGTH, "floor"))),
    Product(X, over_root(NodePattern("Add", SQUARES, NumberPattern("epsilon")))),
    Product(X, over_root(_at_least(SQUARES, "squared"))),
)
ABSOLUTE = Product(X, _over_spread(_at_least(TOTAL, "floor")))


def recognize_lp_norm(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Recognize LpNormalization in its parts: x over its norm along one axis, guarded.

    Given:  %n = Clip()(ReduceL2()(%x, [1]), 1e-12); %y = Div()(%x, Expand()(%n, %shape))
    Result: %y = LpNormalization(axis=1, p=2, floor=1e-12)(%x)

    The guard is a positive number: the least norm (as PyTorch has it), the least sum of squares (as
    TensorFlow), or added to the sum of squares. One added to the norm is something else. Without a
    guard x / norm is NaN where x is 0, while LpNormalization gives 0: that is left alone.

    Numeric effect: the same function over the reals, within the rounding of the parts.
    """
    rules = [
        Rule(EUCLIDEAN, lambda graph, match: _lp_norm(match, 2)),
        Rule(ABSOLUTE, lambda graph, match: _lp_norm(match, 1)),
    ]
    return replace_matches(graph, limit, "recognize_lp_norm", rules)


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "recognize_lp_norm"
        input %x: float32[2, 3, 5]
        const %axis: int64[1] = [1]
        const %floor: float32[] = [0.0009765625]
        const %shape: int64[3] = [2, 3, 5]
        %l: float32[2, 1, 5] = ReduceL2()(%x, %axis)
        %n: float32[2, 1, 5] = Clip()(%l, %floor)
        %w: float32[2, 3, 5] = Expand()(%n, %shape)
        %y: float32[2, 3, 5] = Div()(%x, %w)
        output %y
        """
    )


def _lp_norm(match: PatternMatch, p: int) -> Made | None:
    bound, axes = match.bound, match.bound["axes"]
    epsilon, floor = bound.get("epsilon", 0.0), bound.get("floor", 0.0)
    if "squared" in bound:
        floor = math.sqrt(max(0.0, bound["squared"]))
        if abs(float(np.float32(floor)) - floor) > U / 4 * floor:
            return None  # the root of the guard is no float32: results at it would be off by that
    if len(axes) != 1 or epsilon < 0 or floor < 0 or not epsilon + floor > 0:
        return None
    return LpNormalization(axis=axes[0], p=p, epsilon=epsilon, floor=floor), (bound["x"],)
