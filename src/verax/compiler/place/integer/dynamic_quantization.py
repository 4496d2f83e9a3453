"""Quantization of data while a network runs: the ends of each row, then its numbers."""

from __future__ import annotations

import math
from typing import Any

from verax.compiler.kernels.loops.loop import Access
from verax.compiler.kernels.reduce.rows import ReduceSpec, Stage
from verax.compiler.place.lowering import Lowering
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ir.types import DType
from verax.numerics.arith import Arith
from verax.numerics.expr import Expr, Input, TracingArith
from verax.ops.quantized.dynamic_quantization import HIGH, LOW, DynamicQuantizeGroups
from verax.ops.quantized.per_element import halves_away, quantized

F32, F64 = "float32", "float64"
M = TracingArith()
X, FIRST, SECOND = Input(0, F32), Input(1, F32), Input(2, F32)
"""The element, and what the two stages of its row give."""


def plan_rows(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    type_ = planning.graph.types[node.inputs[0] or ""]
    if 0 in type_.shape:
        return NoKernel("there is nothing to quantize")
    if type_.dtype is not DType.float32:
        return NoKernel(f"no kernel takes {type_.dtype}")
    return planning.refused(node, ReduceSpec) or (Choice("dynamic quantization"),)


@plans("DynamicQuantizeLinear", plan=plan_rows)
def place_linear(lowering: Lowering, group: Group, choice: Choice) -> None:
    """x; scale, zero point, y. One row: the least and the greatest, of which NaN is neither."""
    zero = M.like(0.0, X)
    low = Stage("min", X, M.select(M.lt(FIRST, zero), FIRST, zero))
    high = Stage("max", X, M.select(M.gt(SECOND, zero), SECOND, zero))
    width = M.div(M.sub(SECOND, FIRST), M.like(255.0, X))
    scale = M.select(M.gt(SECOND, FIRST), width, M.like(1.0, X))
    point = M.div(M.neg(FIRST), scale)
    point = M.min(M.max(point, zero), M.like(255.0, X))
    point = M.convert(M.rint(point), "uint8")
    y = quantized(M, X, scale, point, "uint8", F32, "even")
    _emit(lowering, group, 0, (low, high), {1: scale, 2: point}, y)


@plans("DynamicQuantizeGroups", plan=plan_rows)
def place_groups(lowering: Lowering, group: Group, choice: Choice) -> None:
    """x; scale, q: a row for each group."""
    op = group.root.op
    assert isinstance(op, DynamicQuantizeGroups)
    zero = M.like(0.0, X)
    low = Stage("min", X, M.min(FIRST, zero))
    high = Stage("max", X, M.max(SECOND, zero))
    q, scale = (_symmetric if op.symmetric else _asymmetric)(M)
    empty = M.eq(FIRST, SECOND)
    scale = M.select(empty, M.like(1.0, X), scale)
    q = M.select(empty, M.const(0, "int16"), M.convert(q, "int16"))
    _emit(lowering, group, op.axis, (low, high), {1: scale}, q)


def _symmetric(m: Arith[Any]) -> tuple[Expr, Expr]:
    """Integers, of 32 bits, and the scale."""
    largest = m.max(m.neg(FIRST), SECOND)
    end = m.like(float(HIGH), X)
    return _rounded(m, m.mul(X, m.div(end, largest)), float(HIGH)), m.div(largest, end)


def _asymmetric(m: Arith[Any]) -> tuple[Expr, Expr]:
    """Likewise; the zero point is that of the end that is nearer to zero, found in float64."""

    def constant(value: float) -> Expr:
        return m.const(value, F64)

    width = m.convert(m.sub(SECOND, FIRST), F64)
    step = m.div(width, constant(HIGH - LOW))
    below, above = (m.div(m.convert(end, F64), step) for end in (FIRST, SECOND))
    nearer = m.lt(m.add(constant(-LOW), m.abs(below)), m.add(constant(HIGH), m.abs(above)))
    zero = m.select(nearer, m.sub(constant(LOW), below), m.sub(constant(HIGH), above))
    zero = m.trunc(m.add(zero, m.copysign(constant(0.5), zero)))
    zero = m.convert(m.min(m.max(zero, constant(LOW)), constant(HIGH)), "int32")
    scale = m.convert(step, F32)
    q = m.add(_rounded(m, m.mul(X, m.div(m.like(1.0, X), scale)), 1024.0), zero)
    q = m.min(m.max(q, m.const(LOW, "int32")), m.const(HIGH, "int32"))
    return m.sub(q, zero), scale


def _rounded(m: Arith[Any], x: Expr, limit: float) -> Expr:
    """The nearest int32, halves away from zero, of x between -most and most; NaN gives 0."""
    x = m.select(m.eq(x, x), x, m.like(0.0, x))
    x = m.min(m.max(x, m.like(-limit, x)), m.like(limit, x))
    nearest: Expr = halves_away(m, x)
    return nearest


def _emit(
    lowering: Lowering,
    group: Group,
    axis: int,
    stages: tuple[Stage, Stage],
    per_row: dict[int, Expr],
    y: Expr,
) -> None:
    """One call over rows that are what lies behind `axis`. per_row: by number of the output."""
    node = group.root
    shape = lowering.graph.types[node.inputs[0] or ""].shape
    x, out = (
        lowering.values.read_contiguous(node.inputs[0] or ""),
        lowering.values.write_contiguous(node.outputs[0]),
    )
    rows, length = math.prod(shape[:axis]), math.prod(shape[axis:])
    placed = {i: lowering.values.write_contiguous(node.outputs[i]) for i in per_row}
    spec = ReduceSpec(
        (rows,),
        (length,),
        (Access(F32, (length, 1)),),
        stages,
        tuple((Access(e.dtype, (1,)), e) for e in per_row.values()),
        ((Access(y.dtype, (length, 1)), y),),
    )
    lowering.calls.call(spec, [x, *placed.values(), out], group.label)
