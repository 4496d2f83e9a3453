"""What several roundings make of one or two bytes, as one sum that is rounded once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from verax.compiler.passes.quantized import BYTES, swept
from verax.ir.graph import Builder, Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType, TensorType
from verax.ops.pointwise.activation import Clip, Relu
from verax.ops.pointwise.arithmetic import Add, Mul, Neg, Sub
from verax.ops.pointwise.cast import Cast
from verax.ops.quantized.per_element import Parametrized
from verax.ops.quantized.quantization import DequantizeLinear, QuantizeLinear
from verax.ops.quantized.requantization import Requantize
from verax.ops.quantized.weighted_sum import WeightedSumInteger
from verax.records.trace import Trace
from verax.reference.evaluate import evaluate_node

INSIDE = (Add, Sub, Mul, Neg, Relu, Cast, Clip, Requantize, DequantizeLinear)
"""Operators of which what is replaced may consist."""
ENDS = (Requantize, QuantizeLinear)
"""Operators that make bytes of it."""
MOST_NODES = 12
MOST_BYTES = 2
"""More have more combinations than can be tried."""
SHIFTS = range(22, 9, -1)
"""Bits behind the point that are tried: the more, the more exactly factors are stated."""
ROOM = 2**30
"""Sums stay below it in size, so that they may be moved by a zero point."""
STEEPEST = 1024.0
"""No byte changes a result that is one by as much for each step."""
FAR = 0.01
"""Results that are so much further apart than a sum can make them are those of no sum."""
NEAR = (0, 1, -1, 2, -2)
"""How far from the nearest a factor may be, in units of its last place."""


def join_roundings(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Scale and add bytes with one rounding instead of one for each and one of the sum.

    Given:  %a = Requantize()(Mul()(Cast()(%p), %unit), %m, %s)
            %b = Requantize()(Mul()(Cast()(%q), %unit), %n, %t)
            %y = Requantize()(Add()(%a, %b), %f, %e)
    Result: %y = WeightedSumInteger()(%p, %q)

    Where something is computed of one byte or two by sums, products with constants and roundings,
    as integers or as floats, and made a byte again. The factors are read off what the nodes make.

    Numeric effect: none. Both are computed for all bytes, or for all 65,536 pairs of them, and the
    nodes stay as they are unless factors are found that give the same in every case.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        byte_graph = None if rewriter.spent else _byte_graph_of(graph, node)
        op = None if byte_graph is None else _weighted_sum_of(byte_graph)
        if byte_graph is None or op is None:
            rewriter.keep(node)
            continue
        inputs = [rewriter.map(v) for v in byte_graph.bytes]
        output = rewriter.add(op, inputs, node.name, rewriter.names(node))
        rewriter.replace(node, output, "join_roundings")
    return swept(graph, *rewriter.finish())


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "join_roundings"
        input %p: int8[2, 3, 5]
        input %q: int8[2, 3, 5]
        const %unit: int32[] = [1048576]
        const %m: int32[] = [1623821475]
        const %n: int32[] = [1073741824]
        const %f: int32[] = [1098017566]
        const %two: int32[] = [-2]
        const %none: int32[] = [0]
        const %e: int32[] = [-17]
        %a: int32[2, 3, 5] = Cast(to='int32')(%p)
        %b: int32[2, 3, 5] = Mul()(%a, %unit)
        %c: int32[2, 3, 5] = Requantize(output_dtype='int32')(%b, %m, %two)
        %g: int32[2, 3, 5] = Cast(to='int32')(%q)
        %h: int32[2, 3, 5] = Mul()(%g, %unit)
        %i: int32[2, 3, 5] = Requantize(output_dtype='int32')(%h, %n, %none)
        %j: int32[2, 3, 5] = Add()(%c, %i)
        %y: int8[2, 3, 5] = Requantize(zero_point=-128)(%j, %f, %e)
        output %y
        """
    )


@dataclasses.dataclass(frozen=True)
class ByteGraph:
    """nodes: in an order in which they can run, `last` behind them. bytes: what they read that is
    not constant."""

    graph: Graph
    nodes: tuple[Node, ...]
    last: Node
    bytes: tuple[str, ...]


def _byte_graph_of(graph: Graph, last: Node) -> ByteGraph | None:
    """The nodes that compute a byte of one byte or two, ending with `last`; None where others
    take part, read what lies between, or give the result more axes than the bytes have."""
    y = graph.types[last.outputs[0]]
    if not isinstance(last.op, ENDS) or y.dtype not in BYTES or not _is_fixed(graph, last):
        return None
    inside: dict[str, Node] = {}
    read: list[str] = []
    open_values = [v for v in last.inputs if v is not None]
    while open_values:
        value = open_values.pop(0)
        constant = graph.constants.get(value)
        if value in inside or value in read or (constant is not None and constant.size == 1):
            continue
        if constant is None and graph.types[value].dtype in BYTES:
            read.append(value)
            continue
        node = graph.producers.get(value)
        if node is None or not isinstance(node.op, INSIDE) or len(inside) == MOST_NODES:
            return None
        if not _is_fixed(graph, node):
            return None
        if graph.types[value].dtype is DType.bool_ or value in graph.outputs:
            return None
        inside[value] = node
        open_values += [v for v in node.inputs if v is not None]
    computed = {*inside, *last.outputs}
    for value, node in inside.items():
        if isinstance(node.op, DequantizeLinear):
            continue  # others may read it still
        if any(not computed & {*reader.outputs} for reader in graph.consumers[value]):
            return None
    if not inside or not 1 <= len(read) <= MOST_BYTES:
        return None
    if max(graph.types[v].rank for v in read) < y.rank:
        return None
    nodes = tuple(n for n in graph.nodes if n.outputs[0] in inside)
    read.sort(key=list(graph.types).index)
    return ByteGraph(graph, nodes, last, tuple(read))


def _is_fixed(graph: Graph, node: Node) -> bool:
    """Whether scales, zero points and ends are constants."""
    if not isinstance(node.op, Parametrized | Clip):
        return True
    return all(v is None or v in graph.constants for v in node.inputs[1:])


def _weighted_sum_of(byte_graph: ByteGraph) -> WeightedSumInteger | None:
    """The weighted sum that equals the nodes for every byte or pair of bytes; None where the
    search finds none."""
    numbers = [_all_of(byte_graph.graph.types[v].dtype, i) for i, v in enumerate(byte_graph.bytes)]
    between, expected = _evaluate_bytes(byte_graph, numbers)
    slopes = [_factor(byte_graph) * _slope(between, axis) for axis in range(len(numbers))]
    if not all(abs(s) <= STEEPEST for s in slopes):
        return None
    to = byte_graph.graph.types[byte_graph.last.outputs[0]].dtype
    # Saturation costs nothing; what was clipped before it, at a zero point, needs ends of its own.
    for low, high in dict.fromkeys(
        (_ends(byte_graph.last, to), (int(expected.min()), int(expected.max())))
    ):
        parameters = _factors(slopes, numbers, expected, (low, high))
        if parameters is not None:
            factors, offset, bits = parameters
            return WeightedSumInteger(
                factors=factors, offset=offset, shift=bits, low=low, high=high, output_dtype=to
            )
    return None


def _factors(
    slopes: list[float], numbers: list[np.ndarray], expected: np.ndarray, ends: tuple[int, int]
) -> tuple[tuple[int, ...], int, int] | None:
    """(factors, offset, shift) whose weighted sum is `expected` everywhere, clipped to `ends`."""
    for bits in SHIFTS:
        for factors in _nearby_factors([round(s * 2**bits) for s in slopes]):
            first, *remaining = (f * n.astype(np.int64) for f, n in zip(factors, numbers))
            total = sum(remaining, first)
            min_offset, max_offset = _offsets(total, expected, bits, ends)
            if min_offset - max_offset > FAR * 2**bits:
                return None
            offset = (min_offset + max_offset) // 2
            if min_offset <= max_offset and _fits(total, offset, bits):
                return factors, offset, bits
    return None


def _factor(byte_graph: ByteGraph) -> float:
    """The real factor by which the last node multiplies before it rounds."""
    first, *shift = (
        byte_graph.graph.constants[v or ""].reshape(()) for v in byte_graph.last.inputs[1:3]
    )
    if isinstance(byte_graph.last.op, QuantizeLinear):
        return 1 / float(first) if first else np.nan
    return float(first) * 2.0 ** (int(shift[0]) - 31)


def _ends(last: Node, to: DType) -> tuple[int, int]:
    if isinstance(last.op, Requantize):
        return last.op.ends()
    info = np.iinfo(to.numpy)
    return int(info.min), int(info.max)


def _all_of(dtype: DType, axis: int) -> np.ndarray:
    """Every number of a type of bytes, along an axis of two."""
    info = np.iinfo(dtype.numpy)
    numbers = np.arange(info.min, int(info.max) + 1).astype(dtype.numpy)
    return np.expand_dims(numbers, 1 - axis)


def _evaluate_bytes(
    byte_graph: ByteGraph, numbers: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(the last node's first input as float64, its output as int64), evaluated on `numbers`
    and broadcast over all of them."""
    graph, b = byte_graph.graph, Builder()
    arrays = dict(zip(byte_graph.bytes, numbers))
    for value, array in arrays.items():
        b.input(value, TensorType.of(array))
    for node in (*byte_graph.nodes, byte_graph.last):
        for v in node.inputs:
            if v is not None and v not in arrays:
                arrays[v] = graph.constants[v].reshape(())
                b.constant(arrays[v], v)
        b.add(node.op, node.inputs, node.outputs, node.name)
        types = tuple(None if v is None else b.types[v] for v in node.inputs)
        operands = [None if v is None else arrays[v] for v in node.inputs]
        out = tuple(b.types[v] for v in node.outputs)
        (output,) = evaluate_node(node, operands, types, out, np.float32, promised_bits=True)
        arrays[node.outputs[0]] = output
    shape = np.broadcast_shapes(*(a.shape for a in numbers))
    pair = [arrays[byte_graph.last.inputs[0] or ""], arrays[byte_graph.last.outputs[0]]]
    before, after = (np.broadcast_to(a, shape) for a in pair)
    return before.astype(np.float64), after.astype(np.int64)


def _slope(values: np.ndarray, axis: int) -> float:
    """Mean difference of neighbors of `values` along `axis`, over the differences that are as large
    as the largest one (rounding to integers aside), so that steps that a clip shortens do not
    count; nan where the largest is not finite."""
    with np.errstate(invalid="ignore"):
        steps = np.diff(values, axis=axis)
    largest = np.abs(steps).max()
    if not np.isfinite(largest):
        return np.nan
    rounded = 2.0 if (values == np.rint(values)).all() else 0.0
    return float(steps[np.abs(steps) >= 0.999 * largest - rounded].mean())


def _nearby_factors(factors: list[int]) -> Iterator[tuple[int, ...]]:
    """`factors` and those that differ from them by the steps of NEAR."""
    first, *remaining = factors
    for step in NEAR:
        if not remaining:
            yield (first + step,)
        for second_step in NEAR if remaining else ():
            yield first + step, remaining[0] + second_step


def _offsets(
    total: np.ndarray, expected: np.ndarray, bits: int, ends: tuple[int, int]
) -> tuple[int, int]:
    """(minimum, maximum) offset that can be added before the shift so that the result is
    `expected` everywhere; the minimum is above the maximum where none can."""
    step, (low, high) = 1 << bits, ends
    min_offsets = (expected * step - total)[expected > low]
    max_offsets = ((expected + 1) * step - 1 - total)[expected < high]
    if not min_offsets.size or not max_offsets.size:
        return 1 << bits, 0
    return int(min_offsets.max()), int(max_offsets.min())


def _fits(total: np.ndarray, offset: int, bits: int) -> bool:
    """Whether nothing leaves 32 bits, a zero point aside."""
    reach = max(abs(int(end) + offset) for end in (total.min(), total.max()))
    return max(reach, abs(offset), 256 << bits) <= ROOM
