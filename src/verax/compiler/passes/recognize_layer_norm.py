"""Layer normalization written out in means, squares and a root."""

from __future__ import annotations

import numpy as np

from verax.compiler.passes.patterns import (
    Made,
    NodePattern,
    NumberPattern,
    OneOf,
    Parameter,
    Pattern,
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
from verax.ops.sums.layer_normalization import LayerNormalization
from verax.records.trace import Trace

DEVIATION = NodePattern("Sub", X, mean(X))
VARIANCE = mean(square(DEVIATION))
INVERSE = over_root(OneOf(NodePattern("Add", VARIANCE, NumberPattern("epsilon")), VARIANCE))
SCALE, BIAS = Parameter("scale"), Parameter("bias")


def _multiplied_out(*factors: Pattern) -> Pattern:
    """x f + (bias - mean f), as Keras has it; f is the product of the factors."""
    scaled, mean_scaled = Product(X, *factors), Product(mean(X), *factors)
    shift = NodePattern("Sub", BIAS, mean_scaled)
    return OneOf(NodePattern("Add", scaled, shift), NodePattern("Sub", scaled, mean_scaled))


def _with_bias(pattern: Pattern) -> Pattern:
    return OneOf(NodePattern("Add", pattern, BIAS), pattern)


LAYER_NORM = OneOf(
    _with_bias(Product(DEVIATION, INVERSE, SCALE)),
    _with_bias(Product(DEVIATION, INVERSE)),
    _multiplied_out(INVERSE, SCALE),
    _multiplied_out(INVERSE),
)


def recognize_layer_norm(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Recognize LayerNormalization in its parts.

    Given:  %m = ReduceMean()(%x, [-1]); %d = Sub()(%x, %m); %v = ReduceMean()(Pow()(%d, 2), [-1])
            %y = Add()(Mul()(Div()(%d, Sqrt()(Add()(%v, 1e-5))), %scale), %bias)
    Result: %y = LayerNormalization(axis=-1, epsilon=1e-5)(%x, %scale, %bias)

    Both means are over the same last axes and keep them; the exponent is 2, epsilon is a number
    under the root, scale and bias are constants that widen nothing, or are missing. The square, the
    root and the division may be written in other ways (Mul, Rsqrt, Pow by -1/2, a sum divided by
    the number of elements, multiplied out as Keras does).

    Numeric effect: the same function over the reals. The operator rounds where its parts did, but
    multiplies with the reciprocal of the root, and scale and bias are one fused step; within the
    rounding of the parts.
    """
    return replace_matches(graph, limit, "recognize_layer_norm", [Rule(LAYER_NORM, _layer_norm)])


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "recognize_layer_norm"
        input %x: float32[2, 3, 5]
        const %axis: int64[1] = [-1]
        const %two: float32[] = [2.0]
        const %epsilon: float32[] = [0.0009765625]
        const %scale: float32[5] = [1.0, 0.5, 2.0, -1.0, 0.25]
        const %bias: float32[5] = [0.0, 1.0, 0.5, 2.0, -0.5]
        %m: float32[2, 3, 1] = ReduceMean()(%x, %axis)
        %d: float32[2, 3, 5] = Sub()(%x, %m)
        %p: float32[2, 3, 5] = Pow()(%d, %two)
        %v: float32[2, 3, 1] = ReduceMean()(%p, %axis)
        %e: float32[2, 3, 1] = Add()(%v, %epsilon)
        %r: float32[2, 3, 1] = Sqrt()(%e)
        %q: float32[2, 3, 5] = Div()(%d, %r)
        %s: float32[2, 3, 5] = Mul()(%q, %scale)
        %y: float32[2, 3, 5] = Add()(%s, %bias)
        output %y
        """
    )


def _layer_norm(graph: Graph, match: PatternMatch) -> Made | None:
    axis, epsilon = trailing(graph, match), match.bound.get("epsilon", 0.0)
    if axis is None or epsilon < 0 or not averages(graph, match):
        return None
    x = match.bound["x"]
    ones = np.ones(graph.types[x].shape[axis:], np.float32)
    inputs = [x, match.bound.get("scale", ones), match.bound.get("bias")]
    return LayerNormalization(axis=axis, epsilon=epsilon), tuple(inputs)
