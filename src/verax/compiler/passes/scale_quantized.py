"""The division of a QuantizeLinear goes into the constants that scale what it reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from verax.compiler.passes.quantized import swept
from verax.ir.graph import Graph
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add, Mul
from verax.ops.quantized.quantization import DequantizeLinear, QuantizeLinear
from verax.records.trace import Trace

TINY, HUGE = float(np.finfo(np.float32).tiny), 2.0**100
DEEPEST = 8
"""Nodes before a QuantizeLinear that are looked at, one behind the other."""
Build = Callable[[Rewriter], str]


def scale_quantized(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Divide the constants by the scale once, instead of every number.

    Given:  %f = Mul()(%x, %a); %g = Add()(%f, %b); %q = QuantizeLinear()(%g, %s, %z)
    Result: %f = Mul()(%x, %a / %s); %g = Add()(%f, %b / %s); %q = QuantizeLinear()(%g, 1, %z)

    Through Add and Relu down to products with constants, to DequantizeLinear of one scale and to
    constants, where nothing else reads what lies between.

    Numeric effect: a constant is rounded once more, and the quotient not at all. What is quantized
    moves by two roundings of the terms added, which is less than what float32 itself may do.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        scale = graph.constants.get(node.inputs[1] or "") if len(node.inputs) > 1 else None
        build = None
        if isinstance(node.op, QuantizeLinear) and scale is not None and not rewriter.spent:
            single = scale.size == 1 and scale.dtype == np.float32 and not node.op.block_size
            plain = node.op.precision is None and node.op.halves == "even"
            if single and plain and scale.reshape(()) > 0 and scale.reshape(()) != 1:
                build = _divided(graph, node.inputs[0] or "", float(scale.reshape(())), DEEPEST)
        if build is None:
            rewriter.keep(node)
            continue
        one = rewriter.constant(np.ones((), np.float32))
        inputs = [build(rewriter), one, *(rewriter.map(v) for v in node.inputs[2:])]
        output = rewriter.add(node.op, inputs, node.name, rewriter.names(node))
        rewriter.replace(node, output, "scale_quantized")
    return swept(graph, *rewriter.finish())


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "scale_quantized"
        input %x: float32[2, 3, 5]
        const %a: float32[3, 1] = [0.5, -1.25, 0.3]
        const %b: float32[3, 1] = [0.1, 2.0, -0.7]
        const %s: float32[] = [0.03]
        const %z: uint8[] = [113]
        %f: float32[2, 3, 5] = Mul()(%x, %a)
        %g: float32[2, 3, 5] = Add()(%f, %b)
        %q: uint8[2, 3, 5] = QuantizeLinear()(%g, %s, %z)
        output %q
        """
    )


def _divided(graph: Graph, value: str, scale: float, depth: int) -> Build | None:
    """What builds value / scale by other constants; None where something else is in the way."""
    constant = graph.constants.get(value)
    if constant is not None:
        return _constant(constant, scale)
    node = graph.producers.get(value)
    alone = len(graph.consumers.get(value, ())) == 1 and value not in graph.outputs
    if node is None or not alone or not depth or str(graph.types[value].dtype) != "float32":
        return None
    if isinstance(node.op, Relu | Add):
        builds = [_divided(graph, v or "", scale, depth - 1) for v in node.inputs]
        ready = [p for p in builds if p is not None]
        if len(ready) < len(builds):
            return None
        return lambda r: r.add(node.op, [p(r) for p in ready], node.name)
    if isinstance(node.op, Mul):
        for i in (1, 0):
            factor = graph.constants.get(node.inputs[i] or "")
            build = None if factor is None else _constant(factor, scale)
            if build is not None:
                addend, build_divided = node.inputs[1 - i] or "", build
                return lambda r: r.add(node.op, [r.map(addend), build_divided(r)], node.name)
        return None
    if isinstance(node.op, DequantizeLinear) and not node.op.block_size:
        own = graph.constants.get(node.inputs[1] or "")
        build_constant = None if own is None else _constant(own, scale)
        if build_constant is None:
            return None
        op, build_ = dataclasses.replace(node.op), build_constant
        clip_bounds = node.inputs[2:]
        return lambda r: r.add(
            op, [r.map(node.inputs[0]), build_(r), *map(r.map, clip_bounds)], node.name
        )
    return None


def _constant(array: np.ndarray, scale: float) -> Build | None:
    """The constant divided and rounded once, unless that leaves the normal numbers."""
    if array.dtype != np.float32:
        return None
    quotient = array.astype(np.float64) / scale
    size = np.abs(quotient[quotient != 0])
    if not np.isfinite(quotient).all() or not ((size >= TINY) & (size <= HUGE)).all():
        return None
    rounded = quotient.astype(np.float32)
    return lambda r: r.constant(rounded)
