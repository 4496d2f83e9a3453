"""Nodes whose inputs are all constants."""

from __future__ import annotations

import numpy as np

from verax.ir.assumptions import assumptions
from verax.ir.graph import Graph, Node, infer_node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType, TensorType
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

    Large weights that a product dequantizes stay as they are: its kernel reads fewer bytes.

    Numeric effect: none. The value is computed with the bits that the operator promises in its
    canonical order, which are those it would have at run time.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        stays = rewriter.spent or any(v in graph.outputs for v in node.outputs)
        stays = stays or _is_stored(graph, node)
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


def _is_stored(graph: Graph, node: Node) -> bool:
    """True if the node dequantizes a large constant matrix that is only read as the right factor
    of products."""
    if not isinstance(node.op, DequantizeLinear) or len(node.inputs) < 2:
        return False
    quantized, scale = (graph.constants.get(v or "") for v in node.inputs[:2])
    value, readers = node.outputs[0], graph.consumers.get(node.outputs[0], ())
    if (
        quantized is None
        or scale is None
        or quantized.ndim != 2
        or quantized.size < STORED
        or not readers
    ):
        return False
    if quantized.dtype.itemsize > 1 or graph.types[value].dtype is not DType.float32:
        return False
    for reader in readers:
        other_inputs = reader.inputs[0], *reader.inputs[2:]
        if not isinstance(reader.op, MatMul | Gemm) or value in other_inputs:
            return False
        columns = 0 if isinstance(reader.op, Gemm) and reader.op.trans_b else 1
        if not node.op.rows_by_scale(quantized.shape, scale, columns):
            return False
    return True


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
