"""GroupNormalization and InstanceNormalization, whose groups are channels: a reduction gives three
numbers of every group (see `_statistics`), a loop applies them, and whatever elementwise is fused
behind.

The sums of a group run over row-major elements, so a blocked input is copied for them once; those
of a channel are taken where it lies. The loop reads and writes blocks where its neighbors do.
"""

from __future__ import annotations

import dataclasses
import math

from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.reduce.rows import ReduceSpec
from verax.compiler.place.copies import broadcast_strides
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.reduce.reduction import (
    moments,
    narrow,
    one_float,
    place_normalization,
    standardised,
)
from verax.compiler.place.storage import LANES, Physical, Placed
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.expressions import chain_expr
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout, can_block
from verax.ir.graph import Graph, Node
from verax.numerics.expr import Expr, Input, TracingArith, compose
from verax.ops.sums.moments import inverse_of
from verax.ops.sums.normalization import GroupNormalization, InstanceNormalization

M = TracingArith()


def is_compiled(graph: Graph, node: Node) -> bool:
    """Whether kernels take this node: one type throughout, and something to normalize."""
    types = [graph.types[v] for v in (*node.inputs, *node.outputs) if v is not None]
    return bool(one_float(types)) and all(t.is_static and 0 not in t.shape for t in types)


def plan_group_normalization(planning: Planning, node: Node) -> Alternatives:
    """In blocks when the input comes so and channels fill theirs, else in rows."""
    if not is_compiled(planning.graph, node):
        return NoKernel("normalizations take float32 or float64, throughout")
    refused = planning.refused(node, ReduceSpec, LoopSpec)
    if refused is not None:
        return refused
    type_ = planning.graph.types[node.inputs[0] or ""]
    if isinstance(node.op, InstanceNormalization) and type_.rank < 3:
        return NoKernel("there is no axis to normalize over")
    rows = Choice("group normalization", output=Layout.plain, takes_epilogue=True)
    if not can_block(type_) or type_.shape[1] % LANES:
        return (rows,)
    return dataclasses.replace(rows, output=Layout.blocked, blocked_inputs=(0,)), rows


@plans(InstanceNormalization, plan=plan_group_normalization)
def place_instance_normalization(lowering: Lowering, group: Group, choice: Choice) -> None:
    """In rows and alone: one kernel, which meets each row while it is in cache."""
    if group.fused or group.output in lowering.values.layouts.blocked:
        place_group_normalization(lowering, group, choice)
    else:
        place_normalization(lowering, group, choice)


@plans(GroupNormalization, plan=plan_group_normalization)
def place_group_normalization(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Reduction: x, near, inverse, shift. Loop: x, those three, scale, bias, operands, y."""
    graph, node = lowering.graph, group.root
    shape = graph.types[node.inputs[0] or ""].shape
    dtype = str(graph.types[node.inputs[0] or ""].dtype)
    op = node.op
    if isinstance(op, InstanceNormalization):
        op = GroupNormalization(num_groups=shape[1], epsilon=op.epsilon)
    assert isinstance(op, GroupNormalization)
    per = shape[1] // op.num_groups
    blocked = group.output in lowering.values.layouts.blocked
    statistics = _statistics(lowering, group, op, per, blocked and per == 1)
    layout = Layout.blocked if blocked else Layout.plain
    x = lowering.values.read(node.inputs[0] or "", layout)
    scale, bias = (lowering.values.read(v or "") for v in node.inputs[1:])
    steps = per if op.per_group else 1  # channels that share a scale
    arguments = [x, *statistics, scale, bias]
    shared = [*[(op.num_groups, 0, per)] * 3, (0, steps), (0, steps)]
    if blocked:
        arguments[1:] = [
            _per_channel(lowering, a, shape[1], s[-1], group.label)
            for a, s in zip(arguments[1:], shared, strict=True)
        ]
    result, operands = _result(lowering, group, layout)
    y = lowering.values.write(group.output, layout)
    if blocked:
        dims = (y.physical.shape[0], y.physical.blocks, *y.physical.spatial, LANES)
        space = (0,) * len(y.physical.spatial)
        inputs = [Access(dtype, x.physical.strides)]
        inputs += [
            Access(dtype, (shape[1] if len(a.physical.shape) > 1 else 0, LANES, *space, 1))
            for a in arguments[1:]
        ]
        inputs += [Access(dtype, strides) for _, strides in operands]
        written = Access(dtype, y.physical.strides)
    else:
        dims = (shape[0], op.num_groups, per, *shape[2:])
        inner_zeros = (0,) * (len(shape) - 2)

        def split(strides: tuple[int, ...]) -> tuple[int, ...]:
            return strides[0], per * strides[1], *strides[1:]

        own = (0, 1, 0, *inner_zeros) if op.per_group else (0, per, 1, *inner_zeros)
        inputs = [Access(dtype, split(x.physical.strides))]
        inputs += [Access(dtype, (op.num_groups, 1, 0, *inner_zeros))] * 3 + [
            Access(dtype, own)
        ] * 2
        inputs += [Access(dtype, split(strides)) for _, strides in operands]
        written = Access(dtype, split(y.physical.strides))
    spec = LoopSpec(dims, tuple(inputs), (written,), (result,))
    lowering.calls.call(spec, [*arguments, *(o for o, _ in operands), y], group.label)


def _statistics(
    lowering: Lowering, group: Group, op: GroupNormalization, per: int, blocked: bool
) -> list[Placed]:
    """A number near the mean, inverse = 1 / sqrt(variance + epsilon), and what the first lacks of
    the mean, times inverse; each [n, groups]. blocked: x is read so."""
    value = group.root.inputs[0] or ""
    x = (
        lowering.values.read(value, Layout.blocked)
        if blocked
        else lowering.values.read_contiguous(value)
    )
    n, _, *space = x.physical.shape
    length = per * math.prod(space)
    type_ = x.physical.type.with_dims((n, op.num_groups))
    results = [lowering.values.allocate(Physical(type_)) for _ in range(3)]
    dtype = str(x.physical.type.dtype)
    stages = moments(dtype, length, lambda variance: inverse_of(M, variance, op.epsilon))
    statistics = (stages.near, narrow(stages.last, dtype), stages.shift)
    outer: tuple[int, ...]
    read: tuple[int, ...]
    written: tuple[int, ...]
    if blocked:
        batch, block, *steps, lane = x.physical.strides
        outer, reduced = (n, x.physical.blocks, LANES), x.physical.spatial
        read, written = (batch, block, lane, *steps), (op.num_groups, LANES, 1)
    else:
        outer, reduced = (n, op.num_groups), (length,)
        read, written = (op.num_groups * length, length, 1), (op.num_groups, 1)
    spec = ReduceSpec(
        outer,
        reduced,
        (Access(dtype, read),),
        stages.stages,
        tuple((Access(dtype, written), expr) for expr in statistics),
    )
    lowering.calls.call(spec, [x, *results], f"{group.label}: statistics")
    return results


def _per_channel(
    lowering: Lowering, values: Placed, channels: int, shared: int, label: str
) -> Placed:
    """[..., groups] or [..., channels] with one entry for each channel."""
    if shared == 1:
        return values
    *lead, groups = values.physical.shape
    dtype = str(values.physical.type.dtype)
    expanded = lowering.values.allocate(Physical(values.physical.type.with_dims((*lead, channels))))
    rows = math.prod(lead)
    read, written = Access(dtype, (groups, 1, 0)), Access(dtype, (channels, shared, 1))
    spec = LoopSpec((rows, groups, shared), (read,), (written,), (Input(0, dtype),))
    lowering.calls.call(spec, [values, expanded], f"{label}: per channel")
    return expanded


def _result(
    lowering: Lowering, group: Group, layout: Layout
) -> tuple[Expr, list[tuple[Placed, tuple[int, ...]]]]:
    """The expression over x, near, inverse, shift, scale, bias and the fused nodes' operands; those
    with their strides per axis of y as it lies."""
    dtype = str(lowering.graph.types[group.root.inputs[0] or ""].dtype)
    x, near, inverse, shift, scale, bias = (Input(i, dtype) for i in range(6))
    result = M.fma(standardised(x, near, inverse, shift), scale, bias)
    if not group.fused:
        return result, []
    output = group.root.outputs[0]
    shape = lowering.graph.types[output].shape
    chain = chain_expr(lowering.graph, group.fused, [output])
    operands: list[tuple[Placed, tuple[int, ...]]] = []
    for operand in chain.operands[1:]:
        if isinstance(operand, str):
            placed = lowering.values.read(operand, layout)
            operands.append((placed, placed.physical.strides))
        elif layout is Layout.blocked:
            placed = lowering.weights.constant(operand.reshape(-1))
            operands.append((placed, (0, LANES, *(0 for _ in shape[2:]), 1)))
        else:
            placed = lowering.weights.constant(operand)
            strides = broadcast_strides(placed.physical.shape, placed.physical.strides, shape)
            operands.append((placed, strides))
    renumbered = {i: Input(5 + i, dtype) for i in range(1, len(chain.operands))}
    return compose(chain.expr, {0: result, **renumbered}), operands
