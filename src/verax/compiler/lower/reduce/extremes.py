"""ArgMax, ArgMin, Hardmax and TopK.

The first three are a reduction to the extreme, then one over the positions that hold it; positions
come from a table along the axis, so that both passes are those of any reduction.
"""

from __future__ import annotations

import math

import numpy as np

from verax.compiler.decide.fusion import Group
from verax.compiler.kernels.loops.loop import Access
from verax.compiler.kernels.reduce.rows import ReduceSpec, Stage
from verax.compiler.kernels.search.top import TopSpec
from verax.compiler.lower.lowering import Lowering, NoKernel, lowers
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


def _positions(axes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    length = math.prod(shape[a] for a in axes)
    if length > FARTHEST or 0 in shape:
        raise NoKernel("a line is too long, or there is none")
    return np.arange(length, dtype=np.int32)


@lowers("ArgMax", "ArgMin")
def lower_arg(lowering: Lowering, group: Group) -> None:
    """Input, positions, output."""
    node, op = group.root, group.root.op
    assert isinstance(op, ArgExtremum)
    x = lowering.read(node.inputs[0] or "")
    shape, strides, dtype = x.physical.shape, x.physical.strides, str(x.physical.type.dtype)
    axis = op.axis % len(shape)
    kept = [a for a in range(len(shape)) if a != axis]
    table = lowering.constant(_positions((axis,), shape))
    y = lowering.write(node.outputs[0])
    to = y.physical.strides
    to = tuple(to[a] for a in kept) if op.keepdims else to
    spec = ReduceSpec(
        tuple(shape[a] for a in kept),
        (shape[axis],),
        (
            Access(dtype, tuple(strides[a] for a in (*kept, axis))),
            Access(INDEX, (*(0 for _ in kept), 1)),
        ),
        extreme_stages(dtype, op.largest, op.select_last_index),
        ((Access("int64", to), M.convert(Input(3, INDEX), "int64")),),
    )
    lowering.call(spec, [x, table, y], group.label)


@lowers("Hardmax")
def lower_hardmax(lowering: Lowering, group: Group) -> None:
    """Input, positions, output."""
    node, op = group.root, group.root.op
    assert isinstance(op, AlongAxis)
    x, y = lowering.read(node.inputs[0] or ""), lowering.write(node.outputs[0])
    shape, dtype = x.physical.shape, str(x.physical.type.dtype)
    axes = op.axes(len(shape))
    if not axes:
        raise NoKernel("lines of one element")
    table = lowering.constant(_positions(axes, shape))
    order = [*(a for a in range(len(shape)) if a not in axes), *axes]
    kept = len(order) - len(axes)
    along, step = [0] * kept, table.physical.shape[0]
    for a in axes:
        step //= shape[a]
        along.append(step)
    found = M.eq(Input(1, INDEX), Input(3, INDEX))
    result = M.select(found, M.const(1, dtype), M.const(0, dtype))
    spec = ReduceSpec(
        tuple(shape[a] for a in order[:kept]),
        tuple(shape[a] for a in axes),
        (
            Access(dtype, tuple(x.physical.strides[a] for a in order)),
            Access(INDEX, tuple(along)),
        ),
        extreme_stages(dtype, largest=True, last=False),
        (),
        ((Access(dtype, tuple(y.physical.strides[a] for a in order)), result),),
    )
    lowering.call(spec, [x, table, y], group.label)


@lowers(TopK)
def lower_top(lowering: Lowering, group: Group) -> None:
    """Input, scratch memory, values, positions."""
    node, op = group.root, group.root.op
    assert isinstance(op, TopK)
    if node.inputs[1] not in lowering.graph.constants:
        raise NoKernel("k is computed")
    x = lowering.read(node.inputs[0] or "")
    values, indices = (lowering.write_contiguous(v) for v in node.outputs)
    shape = x.physical.shape
    axis = op.axis % len(shape)
    if shape[axis] > FARTHEST:
        raise NoKernel("a line is too long")
    kept = [a for a in range(len(shape)) if a != axis]
    steps, to = x.physical.strides, values.physical.strides
    spec = TopSpec(
        tuple(shape[a] for a in kept),
        shape[axis],
        values.physical.shape[axis],
        tuple(steps[a] for a in kept),
        tuple(to[a] for a in kept),
        steps[axis],
        to[axis],
        op.largest,
        str(x.physical.type.dtype),
    )
    scratch = lowering.scratch(spec.scratch_bytes)
    lowering.call(spec, [x, scratch, values, indices], group.label)
