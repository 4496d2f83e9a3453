"""What only moves or compares numbers does so with bytes, before they are dequantized."""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.passes.quantized import DequantizedFactor, dequantized_by, swept
from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ops.movement.padding import Pad
from verax.ops.quantized.quantization import QuantizeLinear
from verax.ops.windows.pooling import MaxPool
from verax.records.trace import Trace

MOVES = frozenset({"Flatten", "Identity", "Pad", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def move_dequantize(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Remove DequantizeLinear and QuantizeLinear with equal parameters around what keeps bytes.

    Given:  %x = DequantizeLinear()(%q, %s, %z); %m = MaxPool(kernel_shape=(2, 2))(%x);
            %p = QuantizeLinear()(%m, %s, %z)
    Result: %p = MaxPool(kernel_shape=(2, 2))(%q)

    Also with a reshape, a transposition or a Pad between them, whose zeros become zero points, or
    with nothing. There is one scale, which is positive, and every byte comes back as itself: that
    is tried out when the network is compiled.

    Numeric effect: none. Dequantizing by a positive scale keeps the order of bytes.
    """
    rewriter = Rewriter(graph, limit)
    dequantized: dict[
        str, DequantizedFactor
    ] = {}  # new values that are dequantized bytes, of new names
    for node in graph.nodes:
        output = None if rewriter.spent else _moved_bytes(rewriter, node, dequantized)
        if output is not None:
            rewriter.replace(node, output, "move_dequantize")
            continue
        rewriter.keep(node)
        factor = dequantized_by(graph, node)
        if factor is not None and factor.is_single:
            q = rewriter.values[factor.q]
            dequantized[rewriter.values[node.outputs[0]]] = dataclasses.replace(factor, q=q)
    return swept(graph, *rewriter.finish())


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "move_dequantize"
        input %q: uint8[2, 2, 3, 4]
        const %s: float32[] = [0.02]
        const %z: uint8[] = [113]
        %x: float32[2, 2, 3, 4] = DequantizeLinear()(%q, %s, %z)
        %m: float32[2, 2, 2, 3] = MaxPool(kernel_shape=(2, 2))(%x)
        %p: uint8[2, 2, 2, 3] = QuantizeLinear()(%m, %s, %z)
        output %p
        """
    )


def _moved_bytes(
    rewriter: Rewriter, node: Node, dequantized: dict[str, DequantizedFactor]
) -> str | None:
    """The NEW value of the bytes that a QuantizeLinear restores, moved like the floats between;
    None for any other node."""
    graph, op = rewriter.old, node.op
    source = node.inputs[0] or ""
    if not isinstance(op, QuantizeLinear):
        return None
    between = None
    factor = dequantized.get(rewriter.values[source])
    if factor is None:
        between = graph.producers.get(source)
        if between is None or not _keeps_bytes(graph, between):
            return None
        factor = dequantized.get(rewriter.values[between.inputs[0] or ""])
    if factor is None or not _is_inverse(graph, node, factor):
        return None
    if between is None:
        return factor.q
    inputs = [factor.q, *(rewriter.map(v) for v in between.inputs[1:])]
    if isinstance(between.op, Pad) and between.op.mode == "constant":
        dtype = graph.types[node.outputs[0]].dtype.numpy
        fill = rewriter.constant(factor.zero.astype(dtype).reshape(()))
        inputs = [*inputs[:2], fill, *inputs[3:]]
    return rewriter.add(between.op, inputs, between.name, rewriter.names(node))


def _keeps_bytes(graph: Graph, node: Node) -> bool:
    """Whether the node only moves or compares the numbers of its first input."""
    if isinstance(node.op, Pad) and node.op.mode == "constant" and len(node.inputs) > 2:
        fill = node.inputs[2]
        return fill is None or (fill in graph.constants and not graph.constants[fill].any())
    if isinstance(node.op, MaxPool):
        return len(node.outputs) == 1 and not node.op.ceil_mode and not _may_be_empty(node.op)
    return node.op.kind in MOVES


def _may_be_empty(op: MaxPool) -> bool:
    """Whether a window could lie in the padding alone, which is less than any number."""
    if not op.pads:
        return False
    if isinstance(op.pads, str):
        return any(d != 1 for d in op.dilations)
    return any(max(pair) >= size for pair, size in zip(op.pads, op.kernel_shape, strict=True))


def _is_inverse(graph: Graph, node: Node, factor: DequantizedFactor) -> bool:
    """Whether the QuantizeLinear gives every byte back that `factor` dequantizes."""
    assert isinstance(node.op, QuantizeLinear)
    scale = graph.constants.get(node.inputs[1] or "")
    dtype = graph.types[node.outputs[0]].dtype
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    own = np.zeros((), np.int64) if zero is None else graph.constants.get(zero)
    if scale is None or own is None or scale.size != 1 or own.size != 1 or scale.dtype != "float32":
        return False
    if node.op.precision not in (None, "float32") or node.op.block_size:
        return False
    info, s = np.iinfo(dtype.numpy), np.float32(factor.scale.reshape(()))
    bytes_ = np.arange(int(info.min), int(info.max) + 1)
    start = int(factor.zero.reshape(()))
    with np.errstate(all="ignore"):
        values = (bytes_ - start).astype(np.float32) * s
        back = np.rint(values / np.float32(scale.reshape(()))).astype(np.float64)
    same = np.clip(back + int(own.reshape(())), info.min, info.max) == bytes_
    return bool(same.all()) and start == int(own.reshape(())) and info.bits == 8
