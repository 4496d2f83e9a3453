"""Normalization by the root of the mean square written out in its parts."""

from __future__ import annotations

import numpy as np

from verax.compiler.passes.patterns import (
    Made,
    NodePattern,
    NumberPattern,
    OneOf,
    Parameter,
    PatternMatch,
    Product,
    Rule,
    X,
    averages,
    mean,
    over_root,
    replace_matches,
    square,
    trailing,
)
from verax.ir.graph import Graph
from verax.ir.text import parse_graph
from verax.ops.sums.layer_normalization import RMSNormalization
from verax.records.trace import Trace

MEAN_SQUARE = mean(square(X))
INVERSE = over_root(OneOf(NodePattern("Add", MEAN_SQUARE, NumberPattern("epsilon")), MEAN_SQUARE))
RMS_NORM = OneOf(Product(X, INVERSE, Parameter("scale")), Product(X, INVERSE))


def recognize_rms_norm(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Recognize RMSNormalization in its parts.

    Given:  %s = ReduceMean()(Pow()(%x, 2), [-1]); %r = Sqrt()(Add()(%s, 1e-6))
            %y = Mul()(Div()(%x, %r), %scale)
    Result: %y = RMSNormalization(axis=-1, epsilon=1e-6)(%x, %scale)

    The mean is over the last axes and keeps them, the exponent is 2, epsilon is a number under the
    root, scale is a constant that widens nothing, or missing. A LayerNormalization is one of these
    of the deviation from the mean: where that pass is disabled, this one finds that much of it.

    Numeric effect: the same function over the reals, within the rounding of the parts: the
    reciprocal of the root is multiplied with.
    """
    return replace_matches(graph, limit, "recognize_rms_norm", [Rule(RMS_NORM, _rms_norm)])


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "recognize_rms_norm"
        input %x: float32[2, 3, 5]
        const %axis: int64[1] = [-1]
        const %two: float32[] = [2.0]
        const %epsilon: float32[] = [0.0009765625]
        const %scale: float32[5] = [1.0, 0.5, 2.0, -1.0, 0.25]
        %p: float32[2, 3, 5] = Pow()(%x, %two)
        %s: float32[2, 3, 1] = ReduceMean()(%p, %axis)
        %e: float32[2, 3, 1] = Add()(%s, %epsilon)
        %r: float32[2, 3, 1] = Sqrt()(%e)
        %q: float32[2, 3, 5] = Div()(%x, %r)
        %y: float32[2, 3, 5] = Mul()(%q, %scale)
        output %y
        """
    )


def _rms_norm(graph: Graph, match: PatternMatch) -> Made | None:
    axis, epsilon = trailing(graph, match), match.bound.get("epsilon", 0.0)
    if axis is None or epsilon < 0 or not averages(graph, match):
        return None
    x = match.bound["x"]
    ones = np.ones(graph.types[x].shape[axis:], np.float32)
    return RMSNormalization(axis=axis, epsilon=epsilon), (x, match.bound.get("scale", ones))
