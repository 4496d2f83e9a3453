"""Operators on numbers of 16 bits that have a kernel for float32 only are computed there."""

from __future__ import annotations

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import HALVES, DType
from verax.ops.movement.scatter import ScatterElements, ScatterND
from verax.ops.pointwise.cast import Cast
from verax.ops.pointwise.elementwise import Elementwise
from verax.records.trace import Trace

WIDENED = frozenset({
    "AffineGrid", "Attention", "AveragePool", "BatchNormalization", "BoxNMS", "Conv",
    "ConvTranspose", "Einsum", "GRU", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool",
    "GridSample",
    "GroupNormalization", "InstanceNormalization", "LRN", "LSTM", "LayerNormalization",
    "LogSoftmax", "LpNormalization", "LpPool", "MatMul", "MaxPool", "MaxRoiPool",
    "MeanVarianceNormalization", "MultiBoxDetection", "RMSNormalization", "RNN", "Resize",
    "RoiAlign",
    "ScatterElements", "ScatterND", "Softmax",
})  # fmt: skip
"""Operators whose kernels take no halves; all of them promise `Operator.in_float32`."""
MOVING = frozenset({
    "Concat", "DepthToSpace", "Expand", "Flatten", "Identity", "Pad", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that move float32 where all that read the result compute in it: a Pad can then be part
of the convolution behind it."""
CHOOSING = frozenset({"GlobalMaxPool", "MaxPool"})
"""Widened ones that make no new number: their results in float32 are halves as they are."""


def widen_halves(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Compute products, pools, normalizations and the like of float16 and bfloat16 in float32.

    Given:  %y = Conv()(%x, %w) of float16
    Result: %y = Cast(to='float16')(Conv()(Cast(to='float32')(%x), %v))   with %v = %w in float32

    What stands between two of them, rounded to 16 bits step by step, is computed where the first
    one ends. What elementwise operators read as well is kept once, in float32, and halves are made
    of it where they read it.

    Numeric effect: none. What such an operator promises in 16 bits is what it promises in float32,
    rounded once.
    """
    rewriter, wide = Rewriter(graph, limit), dict[str, str]()
    widened = _widened_nodes(graph)
    shared = {v for v in graph.producers if _is_read_both_ways(graph, v, widened)}
    for node in graph.nodes:
        if rewriter.spent:
            for value in {*node.inputs} & wide.keys() - rewriter.values.keys():
                rewriter.values[value or ""] = _narrowed(rewriter, value, wide) or ""
            rewriter.keep(node)
            continue
        if node.outputs[0] in widened:
            _compute_wide(rewriter, node, wide)
        elif any(v in wide for v in node.inputs) and isinstance(node.op, Elementwise):
            operands = [_narrowed(rewriter, v, wide) for v in node.inputs]
            outputs = rewriter.add_all(node.op, operands, node.name, rewriter.names(node))
            rewriter.replace(node, outputs, "widen_halves")
        else:
            rewriter.keep(node)
        for value in shared & {*node.outputs}:
            wide.setdefault(value, rewriter.add(Cast(to=DType.float32), [rewriter.map(value)]))
    return rewriter.finish()


def _compute_wide(rewriter: Rewriter, node: Node, wide: dict[str, str]) -> None:
    """Replace a node by the same in float32 and what rounds its results. wide: values of the old
    graph that the new one has in float32; what only chooses among its inputs makes another."""
    types = rewriter.old.types
    inputs = [wide[v] if v in wide else _widened(rewriter, v) for v in node.inputs]
    if node.op.kind in MOVING:
        wide.update(zip(node.outputs, rewriter.add_all(node.op, inputs, node.name)))
        rewriter.drop(node, "widen_halves")
        return
    results, names = rewriter.add_all(node.op, inputs), rewriter.names(node)
    outputs = [
        rewriter.add(Cast(to=types[old].dtype), [new], node.name if not i else "", [name])
        if types[old].dtype in HALVES
        else new
        for i, (old, new, name) in enumerate(zip(node.outputs, results, names, strict=True))
    ]
    rewriter.replace(node, outputs, "widen_halves")
    if node.op.kind in CHOOSING and types[node.outputs[0]].dtype in HALVES:
        wide[node.outputs[0]] = results[0]


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "widen_halves"
        input %x: float16[2, 2, 5, 7]
        const %w: float16[3, 2, 1, 2] = [1, -0.5, 0.25, 2, 0.75, 1.5, -1, 0.5, -2, 0.5, 1, 0.25]
        %y: float16[2, 3, 5, 6] = Conv()(%x, %w)
        output %y
        """
    )


def _is_widened(graph: Graph, node: Node) -> bool:
    """Whether the node computes in 16 bits, and nothing but that changes in float32."""
    if node.op.kind not in WIDENED or not HALVES & {graph.types[v].dtype for v in node.outputs}:
        return False
    if any(isinstance(a, DType) and a in HALVES for a in node.op.attributes().values()):
        return False  # it would go on making numbers of 16 bits
    return not isinstance(node.op, ScatterElements | ScatterND) or node.op.reduction != "none"


def _widened_nodes(graph: Graph) -> set[str]:
    """First outputs of the nodes that are computed in float32."""
    widened: set[str] = set()
    graph_outputs = {*graph.outputs, *graph.updates.values()}
    for node in reversed(graph.nodes):
        narrow_outputs = [v for v in node.outputs if graph.types[v].dtype in HALVES]
        readers = [n for v in narrow_outputs for n in graph.consumers.get(v, ())]
        moves_only = node.op.kind in MOVING and readers and not graph_outputs & {*narrow_outputs}
        if _is_widened(graph, node) or (
            moves_only and all(n.outputs[0] in widened for n in readers)
        ):
            widened.add(node.outputs[0])
    return widened


def _is_read_both_ways(graph: Graph, value: str, widened: set[str]) -> bool:
    """True if some readers of a 16-bit value are computed in float32 and all others are
    elementwise operators in 16 bits."""
    readers = graph.consumers.get(value, ())
    wide = [node.outputs[0] in widened for node in readers]
    if value in graph.outputs or graph.types[value].dtype not in HALVES or not any(wide):
        return False
    return not all(wide) and all(w or isinstance(n.op, Elementwise) for n, w in zip(readers, wide))


def _narrowed(rewriter: Rewriter, value: str | None, wide: dict[str, str]) -> str | None:
    """The value in 16 bits, made of the same in float32 where that is kept."""
    if value not in wide:
        return rewriter.map(value)
    return rewriter.add(Cast(to=rewriter.old.types[value].dtype), [wide[value]])


def _widened(rewriter: Rewriter, value: str | None) -> str | None:
    """The value in float32: a constant now, anything else when it is there."""
    if value is None or rewriter.old.types[value].dtype not in HALVES:
        return rewriter.map(value)
    constant = rewriter.old.constants.get(value)
    if constant is not None:
        return rewriter.constant(constant.astype(np.float32))
    return rewriter.add(Cast(to=DType.float32), [rewriter.map(value)])
