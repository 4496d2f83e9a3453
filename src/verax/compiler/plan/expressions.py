"""Chains of elementwise nodes as one expression over their operands.

An operator that is elementwise states `compute(self, m, *xs)`; tracing it gives an `Expr`, and
composing the traces of a chain gives the expression that one kernel evaluates per element, with the
same bits as node by node.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.compiler.kernels.llvm.arith import SHORT
from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import Apply, Const, Expr, Input, RunTime, compose, evaluate, nodes, trace
from verax.numerics.formats import numpy_dtype
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.quantized.per_element import Parametrized
from verax.ops.sums.normalization import BatchNormalization

Operand = str | np.ndarray
"""A value of the graph, or a constant array that broadcasts to the output."""


MAX_OPERANDS = 64
"""A sum of more inputs is no expression: registers run out, and expressions are walked in depth."""


def is_elementwise(graph: Graph, node: Node) -> bool:
    """Whether `node` states its meaning per element, on element types that kernels carry."""
    return element_expr(graph, node) is not None


def element_expr(graph: Graph, node: Node) -> Expr | None:
    """The expression of one node over Input(i) for its input number i.

    None when the node is not elementwise, or has no canonical expression for these element types.
    """
    types = [*graph.input_types(node), *graph.output_types(node)]
    if len(node.inputs) > MAX_OPERANDS:
        return None
    if isinstance(node.op, Elementwise) and len(node.outputs) == 1:
        dtypes = tuple(None if t is None else t.dtype for t in types[:-1])
        if not dataclasses.fields(node.op):  # nothing but the class and types decides
            kind: Any = type(node.op)
            return _of_class(kind, dtypes)
        return node.op.expression(dtypes)
    if isinstance(node.op, Parametrized):
        return _parametrized(graph, node)
    fixed = all(v in graph.constants for v in node.inputs[1:])
    if isinstance(node.op, BatchNormalization) and not node.op.training_mode and fixed:
        dtype = str(graph.types[node.outputs[0]].dtype)
        is_float = dtype in ("float32", "float64") and _all_are(types, dtype)
        return trace(node.op.compute, [dtype] * 5) if is_float else None
    return None


@functools.lru_cache(maxsize=1024)
def _of_class(kind: type[Elementwise], dtypes: tuple[DType | None, ...]) -> Expr | None:
    """The expression of an operator without attributes, the same at each of its nodes."""
    return kind().expression(dtypes)


def _parametrized(graph: Graph, node: Node) -> Expr | None:
    """Expression of a parametrized activation; None where a computed parameter does not broadcast
    to the data."""
    assert isinstance(node.op, Parametrized)
    types, y = graph.input_types(node), graph.types[node.outputs[0]]
    constants = [None if v is None else graph.constants.get(v) for v in node.inputs]
    if not y.is_static or types[0] is None:
        return None
    for type_, constant in zip(types[1:], constants[1:]):
        if type_ is not None and constant is None and not node.op.aligned(type_, types[0]):
            return None
    dtypes = [None if t is None else str(t.dtype) for t in types]
    return node.op.expression(dtypes, str(y.dtype), constants)


def _all_are(types: Sequence[TensorType | None], dtype: str) -> bool:
    return all(t is not None and str(t.dtype) == dtype for t in types)


def operands(graph: Graph, node: Node) -> dict[int, Operand]:
    """Operands of an elementwise node by input index; constants in the shape in which they
    broadcast."""
    by_index: dict[int, Operand] = {}
    for i, value in enumerate(node.inputs):
        if value is None:
            continue
        constant = graph.constants.get(value)
        if constant is None or (constant.dtype == object and constant.size > 1):
            by_index[i] = value
        elif isinstance(node.op, Parametrized) and i > 0:
            by_index[i] = node.op.spread(constant, graph.types[node.outputs[0]].shape)
        elif isinstance(node.op, BatchNormalization) and i > 0:
            by_index[i] = constant.reshape(-1, *(1,) * (graph.types[node.outputs[0]].rank - 2))
        else:
            by_index[i] = constant
    return by_index


@dataclasses.dataclass(frozen=True, eq=False)
class Chain:
    """`expr` over Input(i) = operands[i]; every operand broadcasts to the chain's output."""

    expr: Expr
    operands: tuple[Operand, ...]


def chain_expr(graph: Graph, chain: Sequence[Node], first: Sequence[str] = ()) -> Chain:
    """One expression for a chain of elementwise nodes (each may read the earlier ones).

    first: operands that must come first, in this order (the accumulator of a fused kernel).
    Scalar constants become part of the expression, and what depends on constants alone is computed
    now: with the same arithmetic, so with the bits it would have had at run time.
    """
    read: list[Operand] = list(first)
    inner: dict[str, Expr] = {}

    def leaf(operand: Operand) -> Expr:
        if isinstance(operand, str):
            if operand in inner:
                return inner[operand]
            if not any(isinstance(o, str) and o == operand for o in read):
                read.append(operand)
            return Input(_index(read, operand), str(graph.types[operand].dtype))
        if operand.dtype == object:
            return RunTime(operand.reshape(-1)[0], "int64")
        if operand.size == 1:
            return Const(operand.reshape(-1)[0].item(), operand.dtype.name)
        read.append(operand)
        return Input(len(read) - 1, operand.dtype.name)

    for node in chain:
        expr = element_expr(graph, node)
        assert expr is not None
        node_operands = operands(graph, node)
        inner[node.outputs[0]] = compose(expr, {i: leaf(o) for i, o in node_operands.items()})
    chained = without_spare_roundings(inner[chain[-1].outputs[0]])
    return _fold_constants(Chain(chained, tuple(read)), len(first))


KEEPING = {"max": 0, "min": 0, "neg": 0, "abs": 0, "select": 1}
"""Functions that give one of their arguments from that number on, or one with another sign."""


def without_spare_roundings(expr: Expr) -> Expr:
    """`expr` without conversions to 16 bits and back of numbers that 16 bits represent exactly
    (16-bit values, and selections among them)."""
    done: dict[Expr, Expr] = {}
    is_exact: dict[tuple[Expr, str], bool] = {}

    def holds(e: Expr, half: str) -> bool:
        if (e, half) not in is_exact:
            if isinstance(e, Const):
                with np.errstate(over="ignore"):
                    is_held = float(np.asarray(e.value).astype(numpy_dtype(half))) == e.value
            elif isinstance(e, Apply) and e.function == "convert":
                is_held = e.args[0].dtype == half
            elif isinstance(e, Apply) and e.function in KEEPING:
                is_held = all(holds(a, half) for a in e.args[KEEPING[e.function] :])
            else:
                is_held = False
            is_exact[e, half] = is_held
        return is_exact[e, half]

    for node in nodes(expr):
        if not isinstance(node, Apply):
            done[node] = node
            continue
        args = [done[a] for a in node.args]
        inner = args[0]
        back = node.function == "convert" and node.dtype == "float32" and inner.dtype in SHORT
        if back and isinstance(inner, Apply) and inner.function == "convert":
            (wide,) = inner.args
            if wide.dtype == "float32" and holds(wide, inner.dtype):
                done[node] = wide
                continue
        done[node] = Apply(node.function, args, node.dtype)
    return done[expr]


def _index(read: Sequence[Operand], name: str) -> int:
    return next(i for i, o in enumerate(read) if isinstance(o, str) and o == name)


def _fold_constants(chain: Chain, keep: int) -> Chain:
    """Replace subexpressions that read constants alone by their value."""
    arith = NumpyArith()
    fixed: dict[Expr, bool] = {}
    for node in nodes(chain.expr):
        if isinstance(node, Input):
            fixed[node] = not isinstance(chain.operands[node.index], str)
        elif isinstance(node, RunTime):
            fixed[node] = False
        else:
            fixed[node] = not isinstance(node, RunTime) and all(fixed[a] for a in node.args)
    read: list[Operand] = list(chain.operands[:keep])
    done: dict[Expr, Expr] = {}

    def operand(value: Operand, dtype: str) -> Expr:
        for i, candidate in enumerate(read):
            same = candidate is value or (isinstance(value, str) and isinstance(candidate, str))
            if same and (candidate is value or candidate == value):
                return Input(i, dtype)
        read.append(value)
        return Input(len(read) - 1, dtype)

    def rebuild(node: Expr) -> Expr:
        if node not in done:
            if isinstance(node, Const | RunTime):
                done[node] = node
            elif isinstance(node, Input):
                done[node] = operand(chain.operands[node.index], node.dtype)
            elif fixed[node]:
                with np.errstate(all="ignore"):
                    value = np.asarray(evaluate(node, arith, chain.operands))
                done[node] = (
                    Const(value.reshape(-1)[0].item(), node.dtype)
                    if value.size == 1
                    else operand(value, node.dtype)
                )
            else:
                assert isinstance(node, Apply)
                done[node] = Apply(node.function, [rebuild(a) for a in node.args], node.dtype)
        return done[node]

    return Chain(rebuild(chain.expr), tuple(read))
