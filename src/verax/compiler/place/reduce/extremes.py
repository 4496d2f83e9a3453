"""ArgMax, ArgMin, Hardmax and TopK.

The first three are a reduction to the extreme, then one over the positions that hold it; positions
come from a table along the axis, so that both passes are those of any reduction.
"""

from __future__ import annotations

import math

from verax.compiler.kernels.loops.loop import Access
from verax.compiler.kernels.reduce.rows import ReduceSpec, Stage
from verax.compiler.kernels.search.top import TopSpec
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.positions import iota
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.numerics.expr import Expr, Input, TracingArith
from verax.numerics.formats import FLOATS
from verax.ops.sums.arg import ArgExtremum, TopK
from verax.ops.sums.softmax import AlongAxis

INDEX = "int32"
FARTHEST = (1 << 31) - 1
"""Larger than every position; a longer line has no kernel."""
M = TracingArith()


def extreme_stages(
    dtype: str, largest: bool, last: bool, first_stage: int = 2
) -> tuple[Stage, Stage]:
    """Over the line (input 0) and the positions (input 1): its extreme, and where the first or last
    one is. first_stage: how many inputs there are.

    A line with a NaN has NaN for its extreme, which no element equals: the first NaN is meant.
    """
    x, position, extreme = Input(0, dtype), Input(1, INDEX), Input(first_stage, dtype)
    holds: Expr = M.eq(x, extreme)
    if dtype in FLOATS:
        holds = M.or_(holds, M.is_nan(x))
    elsewhere = M.const(-1 if last else FARTHEST, INDEX)
    return (
        Stage("max" if largest else "min", x),
        Stage("max" if last else "min", M.select(holds, position, elsewhere)),
    )


def _refused(
    planning: Planning, node: Node, axes: tuple[int, ...], *specs: type
) -> NoKernel | None:
    """`NoKernel` for lines over `axes` that are too long or empty, and unknown element types."""
    shape = planning.graph.types[node.inputs[0] or ""].shape
    if math.prod(shape[a] for a in axes) > FARTHEST or 0 in shape:
        return NoKernel("a line is too long, or there is none")
    return planning.refused_types(planning.graph.input_types(node)[:1], *specs)


def plan_arg(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    assert isinstance(node.op, ArgExtremum)
    axis = node.op.axis % planning.graph.types[node.inputs[0] or ""].rank
    return _refused(planning, node, (axis,), ReduceSpec) or (Choice("position of an extreme"),)


@plans("ArgMax", "ArgMin", plan=plan_arg)
def place_arg(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, positions, output."""
    node, op = group.root, group.root.op
    assert isinstance(op, ArgExtremum)
    x = lowering.values.read(node.inputs[0] or "")
    shape, strides, dtype = x.physical.shape, x.physical.strides, str(x.physical.type.dtype)
    axis = op.axis % len(shape)
    kept_axes = [a for a in range(len(shape)) if a != axis]
    table = iota(lowering, shape[axis], group.label)
    y = lowering.values.write(node.outputs[0])
    to = y.physical.strides
    to = tuple(to[a] for a in kept_axes) if op.keepdims else to
    spec = ReduceSpec(
        tuple(shape[a] for a in kept_axes),
        (shape[axis],),
        (
            Access(dtype, tuple(strides[a] for a in (*kept_axes, axis))),
            Access(INDEX, (*(0 for _ in kept_axes), 1)),
        ),
        extreme_stages(dtype, op.largest, op.select_last_index),
        ((Access("int64", to), M.convert(Input(3, INDEX), "int64")),),
    )
    lowering.calls.call(spec, [x, table, y], group.label)


def plan_hardmax(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    assert isinstance(node.op, AlongAxis)
    axes = node.op.axes(planning.graph.types[node.inputs[0] or ""].rank)
    if not axes:
        return NoKernel("lines of one element")
    return _refused(planning, node, axes, ReduceSpec) or (Choice("hardmax"),)


@plans("Hardmax", plan=plan_hardmax)
def place_hardmax(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, positions, output."""
    node, op = group.root, group.root.op
    assert isinstance(op, AlongAxis)
    x, y = lowering.values.read(node.inputs[0] or ""), lowering.values.write(node.outputs[0])
    shape, dtype = x.physical.shape, str(x.physical.type.dtype)
    axes = op.axes(len(shape))
    step = math.prod(shape[a] for a in axes)
    table = iota(lowering, step, group.label)
    order = [*(a for a in range(len(shape)) if a not in axes), *axes]
    kept_count = len(order) - len(axes)
    along = [0] * kept_count
    for a in axes:
        step //= shape[a]
        along.append(step)
    is_max = M.eq(Input(1, INDEX), Input(3, INDEX))
    result = M.select(is_max, M.const(1, dtype), M.const(0, dtype))
    spec = ReduceSpec(
        tuple(shape[a] for a in order[:kept_count]),
        tuple(shape[a] for a in axes),
        (
            Access(dtype, tuple(x.physical.strides[a] for a in order)),
            Access(INDEX, tuple(along)),
        ),
        extreme_stages(dtype, largest=True, last=False),
        (),
        ((Access(dtype, tuple(y.physical.strides[a] for a in order)), result),),
    )
    lowering.calls.call(spec, [x, table, y], group.label)


def plan_top(planning: Planning, node: Node) -> Alternatives:
    """One alternative, where k is a constant."""
    assert isinstance(node.op, TopK)
    if node.inputs[1] not in planning.graph.constants:
        return NoKernel("k is computed")
    type_ = planning.graph.types[node.inputs[0] or ""]
    if type_.shape[node.op.axis % type_.rank] > FARTHEST:
        return NoKernel("a line is too long")
    if planning.graph.types[node.outputs[0]].shape[node.op.axis] > type_.shape[node.op.axis]:
        return NoKernel("a line has fewer elements")
    return planning.refused_types([type_], TopSpec) or (Choice("top k"),)


@plans(TopK, plan=plan_top)
def place_top(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, scratch memory, values, positions."""
    node, op = group.root, group.root.op
    assert isinstance(op, TopK)
    x = lowering.values.read(node.inputs[0] or "")
    values, indices = (lowering.values.write_contiguous(v) for v in node.outputs)
    shape = x.physical.shape
    axis = op.axis % len(shape)
    kept_axes = [a for a in range(len(shape)) if a != axis]
    steps, to = x.physical.strides, values.physical.strides
    spec = TopSpec(
        tuple(shape[a] for a in kept_axes),
        shape[axis],
        values.physical.shape[axis],
        tuple(steps[a] for a in kept_axes),
        tuple(to[a] for a in kept_axes),
        steps[axis],
        to[axis],
        op.largest,
        str(x.physical.type.dtype),
    )
    scratch = lowering.values.scratch(spec.scratch_bytes)
    lowering.calls.call(spec, [x, scratch, values, indices], group.label)
