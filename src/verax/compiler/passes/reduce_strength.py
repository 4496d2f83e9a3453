"""Arithmetic with a constant that changes nothing, or that cheaper arithmetic does exactly.

Pow by 2 is not made a product: the promised Pow goes through a logarithm in float64 and rounds a
tie, which the square of every number of 13 bits is in float32, to either side; a product rounds it
to even.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.ops.pointwise.activation import Clip
from verax.ops.pointwise.arithmetic import Add, Div, Max, Min, Mul, Pow, Sub, Sum
from verax.records.trace import Trace


def reduce_strength(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Remove arithmetic that gives its input back, and divide by powers of two with a product.

    Given:  %b = Mul()(%a, [1]); %c = Div()(%b, [4, 0.5]); %d = Clip()(%c, -inf, inf)
            %e = Relu()(%d)
    Result: %c = Mul()(%a, [0.25, 2]); %e = Relu()(%c)

    Removed are x * 1, x / 1, x ^ 1, x + (-0), x - (+0), max(x, -inf), min(x, inf) and Clip without
    a bound that can bind; of integers x + 0 and x - 0 as well, and the type's own ends as bounds.
    Constants are scalars or one number per channel, unless they make x larger.

    Numeric effect: none, for any input: NaN, infinities, both zeros and subnormal numbers. x + 0 is
    kept for floats (it makes -0 to +0), and so is a bound at the largest finite number (an infinity
    is beyond it). A quotient by 2^k is the same real number as the product with 2^-k, rounded once
    either way; it is rewritten where 2^-k is a normal number.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        is_output = any(v in graph.outputs for v in node.outputs)
        index = None if rewriter.spent or is_output else _identity_input(rewriter, node)
        reciprocal = None if rewriter.spent or index is not None else _reciprocal(rewriter, node)
        if index is not None:
            source = rewriter.map(node.inputs[index])
            assert source is not None
            rewriter.replace(node, source, "reduce_strength")
        elif reciprocal is not None:
            inputs = [rewriter.map(node.inputs[0]), rewriter.constant(reciprocal)]
            output = rewriter.add(Mul(), inputs, node.name, rewriter.names(node))
            rewriter.replace(node, output, "reduce_strength")
        else:
            rewriter.keep(node)
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "reduce_strength"
        input %a: float32[3, 2]
        const %one: float32[1] = [1.0]
        const %v: float32[2] = [4.0, 0.5]
        const %low: float32[] = [-inf]
        const %high: float32[] = [inf]
        %b: float32[3, 2] = Mul()(%a, %one)
        %c: float32[3, 2] = Div()(%b, %v)
        %d: float32[3, 2] = Clip()(%c, %low, %high)
        %e: float32[3, 2] = Relu()(%d)
        output %e
        """
    )


def _constants(rewriter: Rewriter, node: Node) -> list[np.ndarray | None]:
    return [rewriter.constant_of(rewriter.map(v)) for v in node.inputs]


def _identity_input(rewriter: Rewriter, node: Node) -> int | None:
    """Index of the input that the node returns unchanged for all values; None where it computes."""
    graph = rewriter.old
    constants = _constants(rewriter, node)
    if isinstance(node.op, Clip):
        indices = [0]
    elif len(node.inputs) == 2 and type(node.op) in UNITS:
        indices = [0, 1] if isinstance(node.op, COMMUTES) else [0]
    else:
        return None
    for index in indices:
        value, other_indices = node.inputs[index], [i for i in range(len(constants)) if i != index]
        if value is None or graph.types[value] != graph.types[node.outputs[0]]:
            continue
        if not graph.types[value].is_static or not _is_ordinary(graph, node):
            continue
        constant_inputs = [(i, constants[i]) for i in other_indices if node.inputs[i] is not None]
        if all(c is not None and _is_unit(node.op, i, c) for i, c in constant_inputs):
            return index
    return None


def _is_unit(op: Operator, index: int, constant: np.ndarray) -> bool:
    """Whether a constant as the input `index` of `op` leaves the other input as it is. One of open
    sizes does not for all of them."""
    if constant.dtype == object:
        return False
    if isinstance(op, Clip):
        return bool(np.all(_is_lowest(constant) if index == 1 else _is_highest(constant)))
    return bool(np.all(UNITS[type(op)](constant)))


def _is_ordinary(graph: Graph, node: Node) -> bool:
    """Numbers whose units are known; not powers of float64, or of an integer to a float."""
    types = {graph.types[v].dtype for v in node.inputs if v is not None}
    if isinstance(node.op, Pow) and (DType.float64 in types or len(types) > 1):
        return False
    return all(t.is_float or t.is_integer for t in types)


def _is_float(c: np.ndarray) -> bool:
    return c.dtype.kind not in "iu"


def _is_one(c: np.ndarray) -> np.ndarray:
    return c == 1


def _is_negative_zero(c: np.ndarray) -> np.ndarray:
    return (c == 0) & (np.signbit(c) if _is_float(c) else True)


def _is_positive_zero(c: np.ndarray) -> np.ndarray:
    return (c == 0) & (~np.signbit(c) if _is_float(c) else True)


def _is_lowest(c: np.ndarray) -> np.ndarray:
    return c == (-np.inf if _is_float(c) else np.iinfo(c.dtype).min)


def _is_highest(c: np.ndarray) -> np.ndarray:
    return c == (np.inf if _is_float(c) else np.iinfo(c.dtype).max)


UNITS: dict[type[Operator], Callable[[np.ndarray], np.ndarray]] = {
    Mul: _is_one,
    Div: _is_one,
    Pow: _is_one,
    Add: _is_negative_zero,
    Sum: _is_negative_zero,
    Sub: _is_positive_zero,
    Max: _is_lowest,
    Min: _is_highest,
}
"""By operator of two inputs: the constants that leave the other input as it is."""
COMMUTES = (Mul, Add, Sum, Max, Min)


def _reciprocal(rewriter: Rewriter, node: Node) -> np.ndarray | None:
    """What to multiply with instead of dividing; None unless it is the same for every input."""
    if not isinstance(node.op, Div):
        return None
    divisor = _constants(rewriter, node)[1]
    if divisor is None or divisor.dtype not in (np.float32, np.float64) or not divisor.size:
        return None
    if not np.all(np.isfinite(divisor) & (divisor != 0)):
        return None
    fraction, exponent = np.frexp(divisor)
    form = np.finfo(divisor.dtype)
    normal = (form.minexp <= 1 - exponent) & (1 - exponent < form.maxexp)
    if not np.all((np.abs(fraction) == 0.5) & normal):
        return None
    return np.asarray(divisor.dtype.type(1) / divisor, divisor.dtype)
