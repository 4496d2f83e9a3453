"""Chains of elementwise nodes as one loop, on row-major or blocked tensors."""

from __future__ import annotations

import numpy as np

from verax.compiler.kernels.convolution.pack import pack_channels
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.place.copies import broadcast_strides
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.pixels import place_along_rows, write_pixels
from verax.compiler.place.storage import LANES, Physical, Placed, Pointer
from verax.compiler.plan.expressions import Chain, chain_expr
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout
from verax.ir.dim import same

VIEWS = frozenset({"Identity"})


def place_elementwise(lowering: Lowering, group: Group) -> None:
    """Operands, then the output."""
    graph = lowering.graph
    if len(group.nodes) == 1 and group.root.op.kind in VIEWS and group.root.inputs[0]:
        lowering.values.alias(group.output, group.root.inputs[0])
        return
    chain = chain_expr(graph, group.nodes)
    if group.output in lowering.values.layouts.blocked:
        _lower_blocked(lowering, group, chain)
        return
    shape = graph.types[group.output].shape
    image = write_pixels(lowering, group.output)
    if image is None:
        output = lowering.values.write(group.output)
        steps = output.physical.strides
    else:
        output, steps = image
    inputs, arguments = [], []
    for operand in chain.operands:
        if isinstance(operand, str):
            pixels = lowering.values.find(operand, Layout.pixels) if image else None
            placed = pixels or lowering.values.read(operand)
        elif image:
            placed = place_along_rows(lowering, operand, shape, steps)
        else:
            placed = lowering.weights.constant(operand)
        physical = placed.physical
        strides = broadcast_strides(physical.shape, physical.axis_strides, shape)
        inputs.append(Access(str(physical.type.dtype), strides))
        arguments.append(placed)
    written = Access(str(output.physical.type.dtype), steps)
    spec = LoopSpec(shape, tuple(inputs), (written,), (chain.expr,))
    lowering.calls.call(spec, [*arguments, output], group.label)


def _lower_blocked(lowering: Lowering, group: Group, chain: Chain) -> None:
    output = lowering.values.write(group.output, Layout.blocked)
    target = output.physical
    dims = (target.shape[0], target.blocks, *target.spatial, LANES)
    inputs: list[Access] = []
    arguments: list[Pointer | Placed] = []
    for operand in chain.operands:
        if not isinstance(operand, str):
            steps = (0, LANES, *(0 for _ in target.spatial), 1)
            inputs.append(Access(operand.dtype.name, steps))
            channels = np.broadcast_to(operand.reshape(-1), (target.shape[1],))
            arguments.append(lowering.weights.packed(pack_channels(channels)))
            continue
        placed = lowering.values.read(operand, Layout.blocked)
        dtype = str(placed.physical.type.dtype)
        inputs.append(Access(dtype, _blocked_strides(placed.physical, target)))
        arguments.append(placed)
    written = Access(str(target.type.dtype), target.strides)
    spec = LoopSpec(dims, tuple(inputs), (written,), (chain.expr,))
    lowering.calls.call(spec, [*arguments, output], group.label)


def _blocked_strides(physical: Physical, target: Physical) -> tuple[int, ...]:
    batch, block, *space, lane = physical.strides
    sizes = (physical.shape[0], *physical.spatial), (target.shape[0], *target.spatial)
    batch, *space = (
        s if same(n, t) or n != 1 else 0 for n, t, s in zip(*sizes, (batch, *space), strict=True)
    )
    return batch, block, *space, lane
