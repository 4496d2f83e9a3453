"""MaxPool and AveragePool on blocked tensors."""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.pooling import PoolSpec, emit_pool
from verax.compiler.lower.epilogues import epilogue
from verax.compiler.lower.fusion import Group
from verax.compiler.lower.lowering import Layouts, Lowering, lowers
from verax.compiler.lower.storage import Layout, can_block
from verax.compiler.lower.strides import kernel_strides, triple
from verax.ir.graph import Graph, Node
from verax.ops.pooling import AveragePool, MaxPool


def is_compiled(graph: Graph, node: Node) -> bool:
    """Whether the kernel can run this node: float32, up to three axes, values only."""
    types = [graph.types[node.inputs[0] or ""], *graph.output_types(node)]
    return len(node.outputs) == 1 and all(t.is_static and can_block(t) for t in types)


def layouts(lowering: Lowering, node: Node) -> Layouts | None:
    """Blocked in and out; the kernel reads no border."""
    if not is_compiled(lowering.graph, node):
        return None
    return Layouts({0: (Layout.blocked, ())}, Layout.blocked)


@lowers(MaxPool, AveragePool, epilogue=is_compiled, layouts=layouts)
def lower_pool(lowering: Lowering, group: Group) -> bool:
    """x, operands, y."""
    graph, node = lowering.graph, group.root
    if not is_compiled(graph, node):
        return False
    op = node.op
    assert isinstance(op, MaxPool | AveragePool)
    x_type = graph.types[node.inputs[0] or ""]
    windows = op.spatial(x_type)
    x = lowering.read(node.inputs[0] or "", Layout.blocked)
    fused, operands = epilogue(lowering, group)
    y = lowering.write(group.output, Layout.blocked)
    spec = PoolSpec(
        kind="max" if isinstance(op, MaxPool) else "average",
        batch=x_type.shape[0],
        channels=x_type.shape[1],
        size=triple(windows.input, 1),
        output=triple(windows.output, 1),
        kernel=triple(windows.kernel_shape, 1),
        x=kernel_strides(x.physical),
        y=kernel_strides(y.physical),
        strides=triple(windows.strides, 1),
        dilations=triple(windows.dilations, 1),
        pads=triple([begin for begin, _ in windows.pads], 0),
        pads_after=triple([end for _, end in windows.pads], 0),
        count_include_pad=isinstance(op, AveragePool) and op.count_include_pad,
    )
    spec = dataclasses.replace(spec, epilogue=fused)
    lowering.call(emit_pool(lowering.module, spec), [x, *operands, y], group.label)
    return True
