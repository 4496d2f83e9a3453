"""Bytes for VNNI, whose instruction takes unsigned bytes of data by signed bytes of weights.

Passes store data minus its zero point in 16 bits, which is what machines without VNNI multiply.
Where VNNI is, `store_in_bytes` gives those values one byte again, if none of them is negative and
all that reads them takes bytes; other data is moved into bytes before a convolution, and what the
move adds to the sums is known ahead. Nothing here changes a number of the network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Physical, Placed
from verax.compiler.plan.layouts import Layout, Pads, widest
from verax.compiler.plan.ranges import Range, range_of
from verax.compiler.plan.steps import STORE_BYTES, Decisions
from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Expr, trace
from verax.ops.pointwise.activation import Clip
from verax.ops.pointwise.cast import Cast
from verax.ops.quantized.quantization import QuantizeLinear
from verax.ops.quantized.requantization import Requantize
from verax.ops.quantized.weighted_sum import WeightedSumInteger

BYTE = 255
"""The largest unsigned byte."""


def subtracted(data: Range, zero: int) -> int | None:
    """What makes unsigned bytes of data when it is taken away; None when nothing does.

    data: the lowest and the highest. zero: what stands for 0, which becomes the byte 0 if it can.
    """
    low, high = data
    if low >= zero and high - zero <= BYTE:
        return zero
    return low if high - low <= BYTE else None


def shifted_to_uint8(lowering: Lowering, value: str, base: int, pads: Pads) -> Placed:
    """`value` minus `base`, blocked, with a border of zeros."""
    type_ = lowering.graph.types[value]
    if type_.dtype is DType.uint8 and base == 0:
        return lowering.values.read(value, Layout.blocked, pads)
    key = (value, f"bytes, minus {base}")
    for placed in lowering.values.centered.get(key, ()):
        if widest(placed.physical.borders, pads) == placed.physical.borders:
            return placed
    target = lowering.values.allocate(Physical(type_.with_dtype(DType.uint8), Layout.blocked, pads))
    source = lowering.values.find_any(value, Layout.blocked, Layout.pixels)
    shifted = bytes_minus(base, type_)
    lowering.calls.copy(source, target, f"{value}: minus {base} in bytes", shifted)
    lowering.values.centered.setdefault(key, []).append(target)
    return target


def bytes_minus(base: int, type_: TensorType) -> Expr:
    """An element of that type, minus `base`, as an unsigned byte."""
    return trace(
        lambda m, x: m.convert(m.sub(m.convert(x, "int16"), m.const(base, "int16")), "uint8"),
        [str(type_.dtype)],
    )


def starting_sums(weights: np.ndarray, zero: int) -> np.ndarray:
    """Where the sums of each filter start when the byte `zero` stands for 0 and there is no border:
    every weight meets a byte that is so much too large. int32, modulo 2^32."""
    sums = weights.reshape(len(weights), -1).sum(axis=1)
    return (-zero * sums).astype(np.int32)


def store_in_bytes(
    graph: Graph, takes_bytes: Callable[[Graph, Node], bool], decisions: Decisions
) -> Graph:
    """The graph with int16 values made as uint8 where all that reads them takes bytes.

    takes_bytes: whether a convolution's kernel would. Nodes keep their number and their order.
    """
    if not decisions.runs(STORE_BYTES):
        return graph
    narrow = {
        value
        for node in graph.nodes
        if _may_be_bytes(graph, node, takes_bytes)
        for value in node.outputs[:1]
        if decisions.allows(STORE_BYTES, f"{value!r} as uint8", value, (value,))
    }
    if not narrow:
        return graph
    wide = {graph.producers[v].inputs[0] for v in narrow if _clips(graph.producers[v])}
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        value = node.outputs[0]
        if value not in narrow and value not in wide:
            rewriter.keep(node)
            continue
        op, inputs = node.op, [rewriter.map(v) for v in node.inputs]
        if isinstance(op, Requantize | WeightedSumInteger | QuantizeLinear):
            op = dataclasses.replace(op, output_dtype=DType.uint8)
        elif isinstance(op, Cast):
            op = dataclasses.replace(op, to=DType.uint8)
        else:
            ends = [graph.constants[v or ""].astype(np.uint8) for v in node.inputs[1:]]
            inputs = [inputs[0], *(rewriter.constant(end) for end in ends)]
        output = rewriter.add(op, inputs, node.name, rewriter.names(node))
        rewriter.replace(node, output, "in bytes")
    return rewriter.finish()[0]


def _clips(node: Node) -> bool:
    return isinstance(node.op, Clip)


def _may_be_bytes(graph: Graph, node: Node, takes_bytes: Callable[[Graph, Node], bool]) -> bool:
    value = node.outputs[0]
    if graph.types[value].dtype is not DType.int16 or value in graph.outputs:
        return False
    low, high = range_of(graph, value)
    if low < 0 or high > BYTE or not _makes_bytes(graph, node):
        return False
    readers = graph.consumers.get(value, ())
    either = [_takes_any(n) for n in readers]
    convolves = [
        not ready and value not in n.inputs[1:] and takes_bytes(graph, n)
        for ready, n in zip(either, readers, strict=True)
    ]
    return any(convolves) and all(a or b for a, b in zip(either, convolves, strict=True))


def _takes_any(reader: Node) -> bool:
    """Whether it reads 16 bits and bytes alike."""
    to_float = isinstance(reader.op, Cast) and reader.op.to.is_float
    return to_float or isinstance(reader.op, WeightedSumInteger)


def _makes_bytes(graph: Graph, node: Node) -> bool:
    """Whether the node could make its numbers, which are such bytes, as bytes."""
    if isinstance(node.op, Requantize | WeightedSumInteger):
        return True
    if isinstance(node.op, Cast):
        return graph.types[node.inputs[0] or ""].dtype is DType.uint8
    if not isinstance(node.op, Clip) or len(node.inputs) != 3:
        return False
    value = node.inputs[0] or ""
    producer = graph.producers.get(value)
    if any(v not in graph.constants for v in node.inputs[1:]) or value in graph.outputs:
        return False
    ends = [int(graph.constants[v or ""].reshape(())) for v in node.inputs[1:]]
    return (
        producer is not None
        and isinstance(producer.op, QuantizeLinear)
        and (len(producer.inputs) < 3 or producer.inputs[2] is None)
        and len(graph.consumers.get(value, ())) == 1
        and 0 <= ends[0] <= ends[1] <= BYTE
    )
