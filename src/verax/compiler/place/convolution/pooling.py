"""MaxPool, AveragePool, LpPool and AveragePoolInteger on blocked tensors."""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.convolution.planar_pooling import PlanarMaxSpec, blocked_cost
from verax.compiler.kernels.convolution.pooling import KNOWN, PoolSpec
from verax.compiler.kernels.layout import Epilogue, Strides
from verax.compiler.kernels.sizes import numbers, static_size
from verax.compiler.place.convolution.epilogues import epilogue
from verax.compiler.place.convolution.pool_positions import (
    POSITIONS,
    place_with_positions,
    plan_with_positions,
)
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.strides import kernel_strides, triple
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout, can_block
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.numerics.expr import trace
from verax.ops.quantized.requantization import AveragePoolInteger
from verax.ops.windows.pooling import AveragePool, LpPool, MaxPool

BLOCKED, PLANAR = "pooling", "planar max pooling"
MAX_PIECES = 256
"""Pieces of code of one kernel: windows that are cut at the border in more ways take minutes to
compile and run on the reference."""

MAX_PADDING = 256
"""Along an axis, of rows that are reduced as they lie: their kernel writes the padding out."""


def is_compiled(graph: Graph, node: Node) -> bool:
    """Whether the kernel can run this node: up to three axes, values only, of types it knows."""
    types = [graph.types[node.inputs[0] or ""], *graph.output_types(node)]
    supported = ("float32", "float64") if isinstance(node.op, AveragePool | LpPool) else KNOWN
    if len(node.outputs) != 1 or any(str(t.dtype) not in supported for t in types):
        return False
    if not all(t.is_static and can_block(t) for t in types):
        return False
    if isinstance(node.op, LpPool) and node.op.p > 2:
        return False
    nothing = Strides(0, 0, 0, 0)
    return pool_spec(graph, node, nothing, nothing).pieces <= MAX_PIECES


def pool_spec(graph: Graph, node: Node, x: Strides, y: Strides) -> PoolSpec:
    """The kernel's view of `node`, for an input and an output with these strides."""
    op, x_type = node.op, graph.types[node.inputs[0] or ""]
    kind = "max" if isinstance(op, MaxPool) else "average"
    if isinstance(op, AveragePoolInteger):
        op, kind = op.pool(), "rounded"
    elif isinstance(op, LpPool):
        kind = f"norm{op.p}"
    assert isinstance(op, MaxPool | AveragePool | LpPool)
    windows = op.spatial(x_type)
    return PoolSpec(
        kind=kind,
        batch=x_type.shape[0],
        channels=x_type.shape[1],
        size=triple(windows.input, 1),
        output=triple(windows.output, 1),
        kernel=triple(windows.kernel_shape, 1),
        x=x,
        y=y,
        strides=triple(windows.strides, 1),
        dilations=triple(windows.dilations, 1),
        pads=triple([begin for begin, _ in windows.pads], 0),
        pads_after=triple([end for _, end in windows.pads], 0),
        count_include_pad=isinstance(op, AveragePool) and op.count_include_pad,
        dtype=str(x_type.dtype),
    )


def plan_pool(planning: Planning, node: Node) -> Alternatives:
    """In blocks, without borders; the largest of some row-major inputs row by row, where that is
    faster than putting them in blocks. An epilogue is taken of floats: a mean of integers ends by
    its own."""
    graph = planning.graph
    if len(node.outputs) > 1:
        return plan_with_positions(planning, node)
    if not is_compiled(graph, node):
        return NoKernel(
            "pools take one to three axes, norms 1 and 2, of float32 or float64 or, for the "
            "largest, integers up to 32 bits"
        )
    refused = planning.refused(node, PoolSpec)
    floats = graph.types[node.outputs[0]].dtype is DType.float32
    data = (0, Layout.blocked, ())
    blocked = Choice(BLOCKED, (data,), output=Layout.blocked, takes_epilogue=floats, spec=PoolSpec)
    is_fixed = graph.types[node.inputs[0] or ""].is_fixed
    planar = _planar_spec(graph, node) if isinstance(node.op, MaxPool) and is_fixed else None
    channels = graph.types[node.inputs[0] or ""].shape[1]
    if planar is not None and planar.cost > blocked_cost(planar, channels):
        planar = None
    if planar is not None:
        refused = planning.refused(node, PlanarMaxSpec) or refused
    if refused is not None:
        return refused
    if planar is None:
        return (blocked,)
    rows = (0, Layout.plain, ())
    by_rows = Choice(
        PLANAR, (rows,), output=Layout.plain, row_major_inputs=(0,), alone=True, detail=planar
    )
    return by_rows, blocked


@plans(MaxPool, AveragePool, LpPool, AveragePoolInteger, plan=plan_pool)
def place_pool(lowering: Lowering, group: Group, choice: Choice) -> None:
    """x, operands, y."""
    graph, node = lowering.graph, group.root
    if choice.kernel == POSITIONS:
        place_with_positions(lowering, group, choice)
        return
    if choice.kernel == PLANAR:
        _place_planar(lowering, group, choice.detail)
        return
    x = lowering.values.read(node.inputs[0] or "", Layout.blocked)
    fused, operands = epilogue(lowering, group)
    if isinstance(node.op, AveragePoolInteger):
        fused = _clipped(node.op, str(graph.types[group.output].dtype))
    y = lowering.values.write(group.output, Layout.blocked)
    spec = pool_spec(graph, node, kernel_strides(x.physical), kernel_strides(y.physical))
    spec = dataclasses.replace(spec, epilogue=fused)
    lowering.calls.call(spec, [x, *operands, y], group.label)


def _planar_spec(graph: Graph, node: Node) -> PlanarMaxSpec | None:
    """The kernel that reduces rows as they lie; None where it would write out too much padding."""
    nothing = Strides(0, 0, 0, 0)
    pool = pool_spec(graph, node, nothing, nothing)
    images = static_size(pool.batch * pool.channels)
    size, output = numbers(pool.size), numbers(pool.output)
    spec = PlanarMaxSpec(
        images,
        size,  # type: ignore[arg-type]
        output,  # type: ignore[arg-type]
        pool.kernel,
        pool.strides,
        pool.dilations,
        pool.pads,
        pool.dtype,
    )
    ends = [
        max(before + n, spec.reach(axis, outputs))
        for axis, (before, n, outputs) in enumerate(zip(spec.pads, spec.size, spec.output))
    ]
    too_much = any(end - n > MAX_PADDING for end, n in zip(ends, spec.size))
    return None if too_much else spec


def _place_planar(lowering: Lowering, group: Group, spec: PlanarMaxSpec) -> None:
    """x, scratch memory, y."""
    x = lowering.values.read_contiguous(group.root.inputs[0] or "")
    scratch = lowering.values.scratch(spec.scratch_bytes)
    lowering.calls.call(
        spec, [x, scratch, lowering.values.write_contiguous(group.output)], group.label
    )


def _clipped(op: AveragePoolInteger, dtype: str) -> Epilogue:
    """A mean in int32 between the operator's ends, as bytes."""
    low, high = op.ends(dtype)
    clip = trace(
        lambda m, x: m.convert(m.min(m.max(x, m.like(low, x)), m.like(high, x)), dtype), ["int32"]
    )
    return Epilogue(clip)
