"""What the passes on quantized networks share: factors that are integers with one scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.types import DType
from verax.ops.quantized.quantization import DequantizeLinear
from verax.records.trace import Trace

BYTES = (DType.int8, DType.uint8)


@dataclasses.dataclass(frozen=True)
class DequantizedFactor:
    """A float32 value (q - zero) scale. q: the integers' value; scale: float32, one number or one
    per index of `axis`; zero: int64, likewise, 0 where there is none."""

    q: str
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    @property
    def is_single(self) -> bool:
        """Whether one scale and one zero point serve for all."""
        return self.scale.size == self.zero.size == 1


def factor_of(graph: Graph, value: str | None) -> DequantizedFactor | None:
    """`value` as dequantized bytes with constant parameters; None for any other value."""
    return None if value is None else dequantized_by(graph, graph.producers.get(value))


def dequantized_by(graph: Graph, node: Node | None) -> DequantizedFactor | None:
    """Bytes, scale, zero point and axis of a DequantizeLinear of int8 or uint8 to float32; None for
    any other node."""
    if node is None or not isinstance(node.op, DequantizeLinear) or node.op.block_size:
        return None
    q, scale, zero = (*node.inputs, None)[:3]
    assert q is not None
    scales = graph.constants.get(scale or "")
    if scales is None or scales.dtype != np.float32 or scales.ndim > 1:
        return None
    if graph.types[q].dtype not in BYTES or graph.types[node.outputs[0]].dtype != DType.float32:
        return None
    if not np.isfinite(scales).all() or (scales < np.finfo(np.float32).tiny).any():
        return None
    zeros = np.zeros((), np.int64)
    if zero is not None:
        if zero not in graph.constants:
            return None
        zeros = graph.constants[zero].astype(np.int64)
    rank = graph.types[q].rank
    return DequantizedFactor(q, scales, zeros, node.op.axis % rank if rank else 0)


def with_products(
    graph: Graph, limit: int | None, product: Callable[[Rewriter, Node], str | None], name: str
) -> tuple[Graph, Trace]:
    """The graph in which `product` made what it can of each node; name: of the pass."""
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        output = None if rewriter.spent else product(rewriter, node)
        if output is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node, output, name)
    return swept(graph, *rewriter.finish())


def swept(before: Graph, graph: Graph, trace: Trace) -> tuple[Graph, Trace]:
    """Without what the rewrites of `before` into `graph` have left unread: who reads a value
    decides about other rewrites. What was unread before stays."""
    if not trace.rewrites:
        return graph, trace
    read = {trace.values[v] for v in _needed(before) if v in trace.values}
    needed = _needed(graph)
    idle = [n for n in graph.nodes if not needed & {*n.outputs} and read & {*n.outputs}]
    gone = {v for n in idle for v in n.outputs}
    nodes = tuple(n for n in graph.nodes if not gone & {*n.outputs})
    types = {v: t for v, t in graph.types.items() if v not in gone}
    values = {old: new for old, new in trace.values.items() if new not in gone}
    graph = dataclasses.replace(graph, nodes=nodes, types=types)
    return graph, Trace(values, trace.records)


def _needed(graph: Graph) -> set[str]:
    """Values that some output depends on."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if needed & {*node.outputs}:
            needed.update(v for v in node.inputs if v is not None)
    return needed


def zero_point_of(graph: Graph, node: Node) -> int | None:
    """The zero point of an integer convolution's data, 0 where it has none; None where only running
    tells."""
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None:
        return 0
    constant = graph.constants.get(value)
    return None if constant is None else int(constant.reshape(()))
