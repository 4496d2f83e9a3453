"""What the standard forbids or leaves open although its checker accepts the model.

A difference there is nobody's mistake, so such cases are not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from verax.ir.graph import Graph, Node

Arrays = Sequence[np.ndarray | None]
MAX_POWER = 4
"""Exponents of integers up to which nothing overflows."""


def unspecified(graph: Graph, values: Mapping[str, np.ndarray]) -> str:
    """Why the result of a node is open, in words; "" where all are stated. values: all of the
    graph's, constants included."""
    for node in graph.nodes:
        rule = RULES.get(node.op.kind)
        arrays = [None if v is None else values.get(v, graph.constants.get(v)) for v in node.inputs]
        if rule is not None and (reason := rule(graph, node, arrays)):
            return reason
    return ""


def _is_integer(graph: Graph, node: Node) -> bool:
    type_ = graph.input_types(node)[0]
    return type_ is not None and not type_.dtype.is_float


def _remainder(graph: Graph, node: Node, arrays: Arrays) -> str:
    """Mod: "If fmod is set to 1, T is constrained to floating point data types"."""
    if _is_integer(graph, node) and node.op.attributes()["fmod"]:
        return "fmod of integers"
    return _quotient(graph, node, arrays)


def _quotient(graph: Graph, node: Node, arrays: Arrays) -> str:
    divisor = arrays[1]
    if _is_integer(graph, node) and (divisor is None or (divisor == 0).any()):
        return "integers divided by zero"
    return ""


def _power(graph: Graph, node: Node, arrays: Arrays) -> str:
    exponent = arrays[1]
    if not _is_integer(graph, node):
        return ""
    if exponent is None or (exponent < 0).any() or (exponent > MAX_POWER).any():
        return "powers of integers that are no integers, or overflow"
    return ""


def _rounded(graph: Graph, node: Node, arrays: Arrays) -> str:
    return "a logarithm or a root rounded to an integer" if _is_integer(graph, node) else ""


def _grid(graph: Graph, node: Node, arrays: Arrays) -> str:
    """AffineGrid: the step between the corners of a single position is 2 / 0."""
    size = arrays[1]
    return "a grid of one position" if size is None or (size == 1).any() else ""


RULES: Mapping[str, Callable[[Graph, Node, Arrays], str]] = {
    "Mod": _remainder,
    "Div": _quotient,
    "Pow": _power,
    "ReduceLogSum": _rounded,
    "ReduceLogSumExp": _rounded,
    "ReduceL2": _rounded,
    "AffineGrid": _grid,
}
