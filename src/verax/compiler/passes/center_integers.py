"""Data of integer convolutions loses its zero point where it is made."""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.passes.quantized import BYTES, dequantized_by, swept, zero_point_of
from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.numerics.fixed_point import wrap32
from verax.ops.movement.reshaping import Reshape, Transpose
from verax.ops.pointwise.activation import Clip
from verax.ops.pointwise.arithmetic import Mul, Sub
from verax.ops.pointwise.cast import Cast
from verax.ops.pointwise.identity import Identity
from verax.ops.quantized.quantization import QuantizeLinear
from verax.ops.quantized.requantization import Requantize
from verax.ops.quantized.weighted_sum import WeightedSumInteger
from verax.ops.sums.linear import MatMul
from verax.ops.windows.integer_convolution import ConvInteger, ConvTransposeInteger
from verax.records.trace import Trace

MOVES = (Identity, Reshape, Transpose)
"""Operators that move bytes and compute nothing."""


def center_integers(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Subtract the zero point of bytes before a convolution, in 16 bits, which its kernel reads.

    Given:  %q = QuantizeLinear()(%x, %s, %z); %y = ConvInteger()(%q, %w, %z)
    Result: %c = Clip()(QuantizeLinear()(%x, %s), -113, 142); %y = ConvInteger()(%c, %w)

    Bytes that one convolution reads of the network's inputs stay: its kernel moves them anyway.

    What made the bytes then makes these 16 bits in one kernel. Where all that reads them is such
    convolutions, weighted sums and DequantizeLinear with one scale s, the last becomes Cast(%c) s,
    sums take differences with another offset, and a QuantizeLinear, Requantize or weighted sum that
    made the bytes makes the differences at once, within their ends.

    A zero point that is computed while the network runs is subtracted by a node of its own before a
    convolution; behind a product, times the sums of the weights' columns, where these are of 8
    bits: (%q - %z) %w = %q %w - %z sum(%w), of integers that wrap around.

    Numeric effect: none. Differences of bytes fit into 16 bits, padding is 0 in both, a difference
    times a scale is rounded once either way, and numbers are clipped after they are rounded.
    """
    rewriter = Rewriter(graph, limit)
    centered: dict[tuple[str, int], str] = {}
    shifted: dict[tuple[str, str], str] = {}
    for node in graph.nodes:
        if not rewriter.spent and _has_computed_zero(graph, node):
            inputs = [_shifted(rewriter, node, shifted), *map(rewriter.map, node.inputs[1:2])]
            if len(node.inputs) > 3 and node.inputs[3] is not None:
                inputs += [None, rewriter.map(node.inputs[3])]  # type: ignore[list-item]
            output = rewriter.add(node.op, inputs, node.name, rewriter.names(node))
            rewriter.replace(node, output, "center_integers")
            continue
        difference = None if rewriter.spent else _product_of_difference(graph, node)
        if difference is not None:
            output = _subtract_behind(rewriter, node, *difference)
            rewriter.replace(node, output, "center_integers")
            continue
        zero = None if rewriter.spent else _zero(graph, node)
        scale = None if rewriter.spent else _scale(graph, node)
        if zero is not None and not _comes_from_outside(graph, node.inputs[0] or ""):
            c = _difference(rewriter, node.inputs[0] or "", zero, centered)
            inputs = [c, rewriter.map(node.inputs[1])]
            if len(node.inputs) > 3 and node.inputs[3] is not None:
                inputs += [None, rewriter.map(node.inputs[3])]  # type: ignore[list-item]
            output = rewriter.add(node.op, inputs, node.name, rewriter.names(node))
            rewriter.replace(node, output, "center_integers")
        elif scale is not None:
            zero_point, multiplier = scale
            c = _difference(rewriter, node.inputs[0] or "", zero_point, centered)
            wide = rewriter.add(Cast(to=DType.float32), [c])
            factor = rewriter.constant(multiplier.reshape(()))
            output = rewriter.add(Mul(), [wide, factor], node.name, rewriter.names(node))
            rewriter.replace(node, output, "center_integers")
        elif isinstance(node.op, WeightedSumInteger) and not rewriter.spent:
            _rewrite_weighted_sum(rewriter, node, centered)
        else:
            rewriter.keep(node)
    return swept(graph, *rewriter.finish())


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "center_integers"
        input %x: float32[2, 2, 3, 4]
        const %s: float32[] = [0.03]
        const %z: uint8[] = [113]
        const %w: int8[3, 2, 1, 2] = [1, -5, 3, 20, 7, 15, -128, 5, -2, 9, 127, 11]
        %q: uint8[2, 2, 3, 4] = QuantizeLinear()(%x, %s, %z)
        %y: int32[2, 3, 3, 3] = ConvInteger()(%q, %w, %z)
        output %y
        """
    )


def _zero(graph: Graph, node: Node) -> int | None:
    """The zero point of the data of a convolution of bytes; None for any other node."""
    if not isinstance(node.op, ConvInteger | ConvTransposeInteger):
        return None
    if graph.types[node.inputs[0] or ""].dtype not in BYTES:
        return None
    return zero_point_of(graph, node)


def _has_computed_zero(graph: Graph, node: Node) -> bool:
    """True for a convolution of bytes whose data have a zero point that no constant holds."""
    if not isinstance(node.op, ConvInteger | ConvTransposeInteger):
        return False
    if graph.types[node.inputs[0] or ""].dtype not in BYTES:
        return False
    return zero_point_of(graph, node) is None


def _shifted(rewriter: Rewriter, node: Node, cached: dict[tuple[str, str], str]) -> str:
    """The NEW int16 value of the data of a convolution minus its zero point, a value as well."""
    q, zero = node.inputs[0] or "", node.inputs[2] or ""
    if (q, zero) not in cached:
        terms = [rewriter.add(Cast(to=DType.int16), [rewriter.map(v)]) for v in (q, zero)]
        cached[q, zero] = rewriter.add(Sub(), terms)
    return cached[q, zero]


def _product_of_difference(graph: Graph, node: Node) -> tuple[str, str] | None:
    """Bytes and their zero point, both as int32, where a product takes their difference on the left
    and a constant matrix of 8 bits on the right, and no constant holds the zero point."""
    if not isinstance(node.op, MatMul):
        return None
    difference, weights = (graph.producers.get(node.inputs[0] or ""),
                           graph.constants.get(node.inputs[1] or ""))  # fmt: skip
    if difference is None or not isinstance(difference.op, Sub) or weights is None:
        return None
    if weights.ndim != 2 or weights.dtype != np.int32 or not _are_bytes(graph, difference):
        return None
    q, zero = (v or "" for v in difference.inputs)
    if zero in graph.constants or graph.types[zero].rank > 1 or graph.types[q].rank < 2:
        return None
    fits = graph.types[zero].is_fixed and int(graph.types[zero].size) == 1
    fits = fits and weights.min(initial=0) >= -128 and weights.max(initial=0) < 128
    return (q, zero) if fits else None


def _are_bytes(graph: Graph, difference: Node) -> bool:
    """True if both operands are bytes cast to int32."""
    casts = [graph.producers.get(v or "") for v in difference.inputs]
    return all(
        cast is not None
        and isinstance(cast.op, Cast)
        and cast.op.to is DType.int32
        and graph.types[cast.inputs[0] or ""].dtype in BYTES
        for cast in casts
    )


def _subtract_behind(rewriter: Rewriter, node: Node, q: str, zero: str) -> str:
    """The NEW product of q, less the zero point times the sums of the weights' columns."""
    weights = rewriter.old.constants[node.inputs[1] or ""]
    sums = rewriter.constant(weights.astype(np.int64).sum(axis=0).astype(np.int32))
    product = rewriter.add(node.op, [rewriter.map(q), rewriter.map(node.inputs[1])])
    offset = rewriter.add(Mul(), [sums, rewriter.map(zero)])
    return rewriter.add(Sub(), [product, offset], node.name, rewriter.names(node))


def _comes_from_outside(graph: Graph, q: str) -> bool:
    """Whether q is an input of the network, moved perhaps, that nothing else reads."""
    while len(graph.consumers.get(q, ())) == 1 and q not in graph.outputs:
        node = graph.producers.get(q)
        if node is None:
            return True
        if not isinstance(node.op, MOVES):
            return False
        q = node.inputs[0] or ""
    return False


def _rewrite_weighted_sum(
    rewriter: Rewriter, node: Node, centered: dict[tuple[str, int], str]
) -> None:
    """A weighted sum that reads differences where nobody else reads the bytes."""
    graph, op = rewriter.old, node.op
    assert isinstance(op, WeightedSumInteger)
    inputs, offset = [rewriter.map(v) for v in node.inputs], op.offset
    for i, (value, factor) in enumerate(zip(node.inputs, op.factors, strict=True)):
        q = value or ""
        zeros = [z for n in graph.consumers[q] if (z := _zero(graph, n)) is not None]
        if zeros and _all_readers_center(graph, q, zeros[0]):
            inputs[i] = _difference(rewriter, q, zeros[0], centered)
            offset += factor * zeros[0]
    if inputs == [rewriter.map(v) for v in node.inputs]:
        rewriter.keep(node)
        return
    new_op = dataclasses.replace(op, offset=int(wrap32(offset)))
    output = rewriter.add(new_op, inputs, node.name, rewriter.names(node))
    rewriter.replace(node, output, "center_integers")


def _scale(graph: Graph, node: Node) -> tuple[int, np.ndarray] | None:
    """Zero point and scale of a DequantizeLinear whose bytes none but such nodes read."""
    factor = dequantized_by(graph, node)
    if factor is None or not factor.is_single:
        return None
    zero = int(factor.zero.reshape(()))
    if not _all_readers_center(graph, factor.q, zero):
        return None
    convolved = any(_zero(graph, n) is not None for n in graph.consumers[factor.q])
    return (zero, factor.scale) if convolved else None


def _all_readers_center(graph: Graph, q: str, zero: int) -> bool:
    """True if every reader of q subtracts this zero point from it."""
    for reader in graph.consumers.get(q, ()):
        factor = dequantized_by(graph, reader)
        if factor is not None and factor.is_single and int(factor.zero.reshape(())) == zero:
            continue
        if isinstance(reader.op, WeightedSumInteger):
            continue
        if _zero(graph, reader) != zero or q in reader.inputs[1:]:
            return False
    return q not in graph.outputs


def _difference(rewriter: Rewriter, q: str, zero: int, centered: dict[tuple[str, int], str]) -> str:
    """The NEW int16 value q - zero; the same one for every caller."""
    if (q, zero) not in centered:
        difference = None
        if _all_readers_center(rewriter.old, q, zero):
            difference = _produced_centered(rewriter, q, zero)
        if difference is None:
            difference = rewriter.add(Cast(to=DType.int16), [rewriter.map(q)])
            if zero:
                difference = rewriter.add(Sub(), [difference, _int16(rewriter, zero)])
        centered[q, zero] = difference
    return centered[q, zero]


def _produced_centered(rewriter: Rewriter, q: str, zero: int) -> str | None:
    """q - zero, computed by the node that makes q; None where that node rounds nothing."""
    graph = rewriter.old
    node = graph.producers.get(q)
    info = np.iinfo(graph.types[q].dtype.numpy)
    low, high = int(info.min) - zero, int(info.max) - zero
    if node is None:
        return None
    inputs = [rewriter.map(v) for v in node.inputs]
    if isinstance(node.op, Requantize):
        ends = [end - zero for end in node.op.ends()]
        new_op = dataclasses.replace(
            node.op,
            zero_point=node.op.zero_point - zero,
            low=ends[0],
            high=ends[1],
            output_dtype=DType.int16,
        )
        return rewriter.add(new_op, inputs, node.name)
    if isinstance(node.op, WeightedSumInteger):
        return _weighted_sum_centered(rewriter, q, zero)
    if not isinstance(node.op, QuantizeLinear):
        return None
    own = graph.constants.get(node.inputs[2] or "") if len(node.inputs) > 2 else np.zeros((), int)
    if own is None or own.size != 1 or int(own.reshape(())) != zero:
        return None
    wide = rewriter.add(
        dataclasses.replace(node.op, output_dtype=DType.int16), inputs[:2], node.name
    )
    limits = [_int16(rewriter, end) for end in (low, high)]
    return rewriter.add(Clip(), [wide, *limits])


def _weighted_sum_centered(rewriter: Rewriter, q: str, zero: int) -> str:
    """q - zero, computed by the weighted sum that makes q (it may read differences itself)."""
    value = rewriter.map(q)
    node = next(n for n in reversed(rewriter.new.nodes) if n.outputs[0] == value)
    op = node.op
    assert isinstance(op, WeightedSumInteger)
    new_op = dataclasses.replace(
        op,
        offset=int(wrap32(op.offset - (zero << op.shift))),
        low=op.low - zero,
        high=op.high - zero,
        output_dtype=DType.int16,
    )
    return rewriter.add(new_op, node.inputs, node.name)


def _int16(rewriter: Rewriter, value: int) -> str:
    return rewriter.constant(np.array(value, np.int16))
