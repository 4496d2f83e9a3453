"""What an integer value can be at most and at least, as far as the graph tells: products of numbers
that fit into 16 bits are cheaper."""

from __future__ import annotations

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ops.pointwise.activation import Clip
from verax.ops.quantized.requantization import Requantize
from verax.ops.quantized.weighted_sum import WeightedSumInteger

Range = tuple[int, int]
MOVES = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile"}
)
"""Operators whose elements are those of their first input."""
DEEPEST = 16
"""Nodes that are walked through backwards."""


def range_of(graph: Graph, value: str, depth: int = DEEPEST) -> Range:
    """(minimum, maximum) of the integer tensor `value`, as far as its producers tell."""
    constant = graph.constants.get(value)
    if constant is not None:
        return (int(constant.min()), int(constant.max())) if constant.size else (0, 0)
    dtype = graph.types[value].dtype
    if str(dtype) == "bool":
        return (0, 1)
    info = np.iinfo(dtype.numpy)
    widest = int(info.min), int(info.max)
    computed = _range_of_node(graph, value, depth) if depth else None
    if computed is None or computed[0] < widest[0] or computed[1] > widest[1]:  # it may wrap
        return widest
    return computed


def _range_of_node(graph: Graph, value: str, depth: int) -> Range | None:
    node = graph.producers.get(value)
    if node is None or not node.inputs:
        return None
    if isinstance(node.op, Requantize):
        return node.op.ends()
    if isinstance(node.op, WeightedSumInteger):
        return node.op.low, node.op.high
    if isinstance(node.op, Clip):
        return _clipped(graph, node, depth)
    if any(v is None for v in node.inputs):
        return None
    values = [v for v in node.inputs if v is not None]
    if graph.types[values[0]].dtype.is_float:
        return None
    kind, ranges = node.op.kind, lambda i: range_of(graph, values[i], depth - 1)
    if kind in MOVES or kind == "Cast":
        return ranges(0)
    if kind in ("Add", "Sub"):
        (a, b), (c, d) = ranges(0), ranges(1)
        return (a + c, b + d) if kind == "Add" else (a - d, b - c)
    return None


def _clipped(graph: Graph, node: Node, depth: int) -> Range | None:
    """What is left between ends that are constants; the lower one first, as `Clip` has it."""
    if graph.types[node.outputs[0]].dtype.is_float:
        return None
    low, high = range_of(graph, node.inputs[0] or "", depth - 1)
    ends = [graph.constants.get(v) if v else None for v in (*node.inputs[1:], None, None)[:2]]
    if ends[0] is not None:
        low, high = (max(n, int(ends[0].reshape(()))) for n in (low, high))
    if ends[1] is not None:
        low, high = (min(n, int(ends[1].reshape(()))) for n in (low, high))
    return low, high
