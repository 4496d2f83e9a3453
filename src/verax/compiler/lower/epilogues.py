"""Elementwise nodes fused behind a kernel that makes a blocked tensor: its epilogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from verax.compiler.kernels.conv_pack import pack_channels
from verax.compiler.kernels.layout import Epilogue, Operand
from verax.compiler.lower.expressions import chain_expr
from verax.compiler.lower.storage import Layout, Place, Placed
from verax.compiler.lower.strides import kernel_strides
from verax.ir.graph import Graph, Node
from verax.ir.types import DType

if TYPE_CHECKING:
    from verax.compiler.lower.fusion import Group
    from verax.compiler.lower.lowering import Lowering


def fits_epilogue(graph: Graph, accumulator: str, node: Node) -> bool:
    """Whether `node`, which reads `accumulator`, can be part of an epilogue.

    Its other operands must be scalars or per-channel constants, or tensors of the result's shape;
    all is float32.
    """
    result = graph.types[accumulator]
    if any(graph.types[v].dtype is not DType.float32 for v in (*node.outputs, accumulator)):
        return False
    for value in node.inputs:
        if value is None or value == accumulator:
            continue
        type_ = graph.types[value]
        if type_.dtype is not DType.float32:
            return False
        constant = graph.constants.get(value)
        if constant is not None and (constant.size == 1 or is_per_channel(constant, result.rank)):
            continue
        if type_.dims != result.dims:
            return False
    return True


def is_per_channel(array: np.ndarray, rank: int) -> bool:
    """Whether `array` broadcasts along the channel axis (axis 1) alone of a tensor of `rank`."""
    shape = (1,) * (rank - array.ndim) + array.shape
    return array.ndim <= rank and all(n == 1 for axis, n in enumerate(shape) if axis != 1)


def epilogue(
    lowering: Lowering, group: Group
) -> tuple[Epilogue | None, tuple[Place | Placed, ...]]:
    """The group's epilogue and the arguments of its operands; (None, ()) when nothing is fused."""
    if not group.fused:
        return None, ()
    graph = lowering.graph
    accumulator = group.root.outputs[0]
    chain = chain_expr(graph, group.fused, [accumulator])
    operands, arguments = [], []
    for value in chain.operands[1:]:
        constant = graph.constants.get(value)
        rank = graph.types[accumulator].rank
        if constant is not None and is_per_channel(constant, rank):
            channels = graph.types[accumulator].shape[1]
            operands.append(Operand("channel"))
            full = np.broadcast_to(constant.reshape(-1), (channels,))
            arguments.append(lowering.packed(pack_channels(full)))
        else:
            placed = lowering.read(value, Layout.blocked)
            operands.append(Operand("tensor", kernel_strides(placed.physical)))
            arguments.append(placed)
    return Epilogue(chain.expr, tuple(operands)), tuple(arguments)
