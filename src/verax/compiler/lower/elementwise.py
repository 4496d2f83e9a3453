"""Chains of elementwise nodes as one loop, on row-major or blocked tensors."""

from __future__ import annotations

from verax.compiler.kernels.conv_pack import pack_channels
from verax.compiler.kernels.loops import Access, LoopSpec, emit_loop
from verax.compiler.lower.copies import broadcast_strides
from verax.compiler.lower.epilogues import is_per_channel
from verax.compiler.lower.expressions import Chain, chain_expr
from verax.compiler.lower.fusion import Group
from verax.compiler.lower.lowering import Lowering
from verax.compiler.lower.storage import Layout, Physical, Place, Placed, can_block
from verax.ir.graph import Graph
from verax.ir.types import DType, TensorType

VIEWS = frozenset({"Identity"})


def prefers_blocked(lowering: Lowering, group: Group) -> bool:
    """Whether a chain is to be computed in the blocked layout: one operand comes blocked already
    and the others can be read so."""
    graph = lowering.graph
    if any(not lowering.is_static(n) for n in group.nodes):
        return False
    output = graph.types[group.output]
    if not can_block(output):
        return False
    nodes = group.nodes
    inner = {v for n in nodes for v in n.outputs}
    operands = {v for n in nodes for v in n.inputs if v is not None and v not in inner}
    comes_blocked = any(
        v in lowering.blocked and graph.types[v].dims == output.dims for v in operands
    )
    return comes_blocked and all(_blockable(graph, v, output) for v in operands)


def _blockable(graph: Graph, value: str, output: TensorType) -> bool:
    type_ = graph.types[value]
    if type_.dtype is not DType.float32:
        return False
    constant = graph.constants.get(value)
    if constant is not None and (constant.size == 1 or is_per_channel(constant, output.rank)):
        return True
    if type_.rank != output.rank:
        return False
    # Broadcasting along space is a stride of zero; along channels it would repeat one lane.
    return type_.shape[1] == output.shape[1] and can_block(type_)


def lower_elementwise(lowering: Lowering, group: Group) -> bool:
    """Operands, then the output."""
    graph = lowering.graph
    if len(group.nodes) == 1 and group.root.op.kind in VIEWS and group.root.inputs[0]:
        lowering.alias(group.output, group.root.inputs[0])
        return True
    chain = chain_expr(graph, group.nodes)
    if group.output in lowering.blocked:
        return _lower_blocked(lowering, group, chain)
    output = lowering.write(group.output)
    shape = graph.types[group.output].shape
    inputs, arguments = [], []
    for value in chain.operands:
        placed = lowering.read(value)
        physical = placed.physical
        strides = broadcast_strides(physical.shape, physical.strides, shape)
        inputs.append(Access(str(physical.type.dtype), strides))
        arguments.append(placed)
    written = Access(str(output.physical.type.dtype), output.physical.strides)
    kernel = emit_loop(lowering.module, LoopSpec(shape, tuple(inputs), (written,), (chain.expr,)))
    lowering.call(kernel, [*arguments, output], group.label)
    return True


def _lower_blocked(lowering: Lowering, group: Group, chain: Chain) -> bool:
    graph = lowering.graph
    output = lowering.write(group.output, Layout.blocked)
    target = output.physical
    dims = (target.shape[0], target.blocks, *target.spatial, 16)
    inputs: list[Access] = []
    arguments: list[Place | Placed] = []
    for value in chain.operands:
        constant = graph.constants.get(value)
        if constant is not None and is_per_channel(constant, target.type.rank):
            inputs.append(Access("float32", (0, 16, *(0 for _ in target.spatial), 1)))
            arguments.append(lowering.packed(pack_channels(constant)))
            continue
        placed = lowering.read(value, Layout.blocked)
        inputs.append(Access("float32", _blocked_strides(placed.physical, target)))
        arguments.append(placed)
    spec = LoopSpec(dims, tuple(inputs), (Access("float32", target.strides),), (chain.expr,))
    lowering.call(emit_loop(lowering.module, spec), [*arguments, output], group.label)
    return True


def _blocked_strides(physical: Physical, target: Physical) -> tuple[int, ...]:
    batch, block, *space, lane = physical.strides
    steps = (0 if n == 1 else s for n, s in zip(physical.spatial, space))
    return (0 if physical.shape[0] == 1 else batch, block, *steps, lane)
