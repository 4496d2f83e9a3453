"""Chains of elementwise nodes as one expression over their operands.

An operator that is elementwise states `compute(self, m, *xs)`; tracing it gives an `Expr`, and
composing the traces of a chain gives the expression that one kernel evaluates per element, with the
same bits as node by node.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from verax.ir.graph import Graph, Node
from verax.numerics.expr import Const, Expr, Input, compose
from verax.ops.elementwise import Elementwise

COMPILED_DTYPES = frozenset(
    {"float32", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)
"""Element types that compiled elementwise kernels carry."""


def is_elementwise(graph: Graph, node: Node) -> bool:
    """Whether `node` states its meaning per element, on element types that kernels carry."""
    return element_expr(graph, node) is not None


def element_expr(graph: Graph, node: Node) -> Expr | None:
    """The expression of one node over Input(i) for its input number i.

    None when the node is not elementwise, or has no canonical expression for these element types.
    """
    if not isinstance(node.op, Elementwise):
        return None
    types = [*graph.input_types(node), *graph.output_types(node)]
    if any(t is not None and t.dtype.value not in COMPILED_DTYPES for t in types):
        return None
    return node.op.expression([None if t is None else t.dtype for t in graph.input_types(node)])


@dataclasses.dataclass(frozen=True)
class Chain:
    """`expr` over Input(i) = operands[i]; every operand broadcasts to the chain's output."""

    expr: Expr
    operands: tuple[str, ...]


def chain_expr(graph: Graph, nodes: Sequence[Node], first: Iterable[str] = ()) -> Chain:
    """One expression for a chain of elementwise nodes (each may read the earlier ones).

    first: operands that must come first, in this order (the accumulator of a fused kernel).
    Scalar constants become part of the expression.
    """
    operands = list(first)
    inner: dict[str, Expr] = {}

    def operand(value: str) -> Expr:
        if value in inner:
            return inner[value]
        dtype = str(graph.types[value].dtype)
        constant = graph.constants.get(value)
        if constant is not None and constant.size == 1 and value not in operands:
            return Const(_python_scalar(constant), dtype)
        if value not in operands:
            operands.append(value)
        return Input(operands.index(value), dtype)

    for node in nodes:
        expr = element_expr(graph, node)
        assert expr is not None
        inner[node.outputs[0]] = compose(
            expr, {i: operand(v) for i, v in enumerate(node.inputs) if v is not None}
        )
    return Chain(inner[nodes[-1].outputs[0]], tuple(operands))


def _python_scalar(constant: np.ndarray) -> float | int | bool:
    return constant.reshape(-1)[0].item()
