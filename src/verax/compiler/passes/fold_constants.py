"""Nodes whose inputs are all constants."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from verax.ir.assumptions import assumptions
from verax.ir.graph import Graph, Node, infer_node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType, TensorType
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.cast import Cast
from verax.ops.pointwise.identity import Identity
from verax.ops.quantized.quantization import DequantizeLinear
from verax.ops.sums.linear import Gemm, MatMul
from verax.records.trace import Trace
from verax.reference.evaluate import evaluate_node

STORED = 1 << 16
"""Weights of products that are at least so many stay quantized."""
SIZE_LIMIT = 1 << 24
"""Results with more elements than this and than they are computed of are left to run time."""


def fold_constants(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Replace nodes whose inputs are all constant by their value.

    Given:  const %s; %t = Exp()(%s); %y = Mul()(%x, %t)
    Result: const %t; %y = Mul()(%x, %t)

    Large weights that a product dequantizes stay as they are: its kernel reads fewer bytes. A
    Transpose between is one of the integers.

    Numeric effect: none. The value is computed with the bits that the operator promises in its
    canonical order, which are those it would have at run time.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        stays = rewriter.spent or any(v in graph.outputs for v in node.outputs)
        stays = stays or _is_stored(rewriter, node)
        stored = None if rewriter.spent else _transposed(rewriter, node)
        stored = stored or (None if rewriter.spent else _cast_late(rewriter, node))
        if stored is not None:
            rewriter.replace(node, stored, "fold_constants")
            continue
        values = None if stays else _values(rewriter, node)
        if values is None:
            rewriter.keep(node)
            continue
        names = [
            rewriter.constant(array, v if v not in rewriter.new.types else "")
            for v, array in zip(node.outputs, values)
        ]
        rewriter.replace(node, names, "fold_constants")
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "fold_constants"
        input %x: float32[2, 3]
        const %s: float32[3] = [0.0, 1.0, -1.0]
        %t: float32[3] = Exp()(%s)
        %y: float32[2, 3] = Mul()(%x, %t)
        output %y
        """
    )


def _constants(rewriter: Rewriter, node: Node) -> list[np.ndarray | None]:
    """The node's inputs as far as they are constants, or were folded to be."""
    new = [None if v is None else rewriter.map(v) for v in node.inputs]
    return [None if v is None else rewriter.new.constants.get(v) for v in new]


def _is_stored(rewriter: Rewriter, node: Node) -> bool:
    """True if the node dequantizes a large constant matrix that is only read as the right factor
    of products."""
    graph = rewriter.old
    if not isinstance(node.op, DequantizeLinear) or len(node.inputs) < 2:
        return False
    constants, value = _constants(rewriter, node), node.outputs[0]
    quantized, scale = constants[:2]
    if quantized is None or scale is None or quantized.ndim != 2 or quantized.size < STORED:
        return False
    if any(c is None and v is not None for c, v in zip(constants, node.inputs, strict=True)):
        return False
    if quantized.dtype.itemsize > 1 or graph.types[value].dtype is not DType.float32:
        return False
    readers = list(_readers(graph, value))
    for reader, operand, is_transposed in readers:
        if reader is None or not isinstance(reader.op, MatMul | Gemm):
            return False
        if operand in (reader.inputs[0], *reader.inputs[2:]):
            return False
        columns = 0 if isinstance(reader.op, Gemm) and reader.op.trans_b else 1
        columns = 1 - columns if is_transposed else columns
        if not node.op.rows_by_scale(quantized.shape, scale, columns):
            return False
    return bool(readers)


def _readers(
    graph: Graph, value: str, is_transposed: bool = False
) -> Iterator[tuple[Node | None, str, bool]]:
    """What reads a matrix, the value that it reads, and whether that is the matrix transposed; None
    for who runs the network."""
    if value in graph.outputs:
        yield None, value, is_transposed
    for reader in graph.consumers.get(value, ()):
        if isinstance(reader.op, Identity):
            yield from _readers(graph, reader.outputs[0], is_transposed)
        elif isinstance(reader.op, Transpose) and graph.types[value].rank == 2:
            swaps = reader.op.perm in (None, (1, 0))
            yield from _readers(graph, reader.outputs[0], is_transposed != swaps)
        else:
            yield reader, value, is_transposed


def _transposed(rewriter: Rewriter, node: Node) -> str | None:
    """The NEW value of a Transpose of weights that stay quantized: integers, scales and zero points
    are transposed instead."""
    graph = rewriter.old
    if not isinstance(node.op, Transpose) or node.op.perm not in (None, (1, 0)):
        return None
    source = graph.producers.get(node.inputs[0] or "")
    while source is not None and isinstance(source.op, Identity):
        source = graph.producers.get(source.inputs[0] or "")
    if source is None or not _is_stored(rewriter, source):
        return None
    op = source.op
    assert isinstance(op, DequantizeLinear)
    arrays = _constants(rewriter, source)
    inputs = [None if a is None else rewriter.constant(np.ascontiguousarray(a.T)) for a in arrays]
    changed = dataclasses.replace(op, axis=1 - op.axis % 2)
    return rewriter.add(changed, inputs, node.name, rewriter.names(node))


def _cast_late(rewriter: Rewriter, node: Node) -> str | None:
    """The NEW value of a Cast to float32 of a large constant matrix of bytes that is only read as
    the right factor of products: a DequantizeLinear whose scale is 1."""
    if not isinstance(node.op, Cast) or node.op.to is not DType.float32:
        return None
    (bytes_,), value = _constants(rewriter, node), node.outputs[0]
    if bytes_ is None or bytes_.dtype not in (np.int8, np.uint8) or bytes_.ndim != 2:
        return None
    readers = list(_readers(rewriter.old, value))
    products = [r for r, _, transposed in readers if r is not None and not transposed]
    if bytes_.size < STORED or not products or len(products) < len(readers):
        return None
    for reader, operand, _ in readers:
        if reader is None or not isinstance(reader.op, MatMul | Gemm):
            return None
        if operand in (reader.inputs[0], *reader.inputs[2:]):
            return None
    inputs = [rewriter.map(node.inputs[0]), rewriter.constant(np.array(1, np.float32))]
    return rewriter.add(DequantizeLinear(), inputs, node.name, rewriter.names(node))


def _is_content(content: np.ndarray, type_: TensorType) -> bool:
    """Whether what type rules know of a value may be its constant: numbers, or sizes that stand for
    numbers."""
    return content.dtype != object or (assumptions() is not None and type_.dtype is DType.int64)


def _values(rewriter: Rewriter, node: Node) -> list[np.ndarray] | None:
    """The node's outputs as arrays; None unless they can be computed at compile time."""
    new = rewriter.new
    new_node = Node(node.op, tuple(rewriter.map(v) for v in node.inputs), node.outputs, node.name)
    types, contents = infer_node(new_node, new.types, new.known)
    if all(k is not None and _is_content(k, t) for k, t in zip(contents, types)):
        return [np.asarray(k, order="C") for k in contents if k is not None]
    if any(v is not None and v not in new.constants for v in new_node.inputs):
        return None
    if any(v is not None and new.constants[v].dtype == object for v in new_node.inputs):
        return None
    arrays = [None if v is None else new.constants[v] for v in new_node.inputs]
    largest = max((a.size for a in arrays if a is not None), default=0)
    if any(not t.is_fixed or int(t.size) > max(SIZE_LIMIT, largest) for t in types):
        return None
    inputs = tuple(None if v is None else new.types[v] for v in new_node.inputs)
    results = evaluate_node(new_node, arrays, inputs, types, np.float32, promised_bits=True)
    return [np.asarray(r, order="C") for r in results]
